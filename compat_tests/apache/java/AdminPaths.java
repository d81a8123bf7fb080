import java.lang.annotation.Annotation;
import java.lang.reflect.Method;
import java.util.TreeSet;
import javax.ws.rs.HttpMethod;
import javax.ws.rs.Path;

/** Prints the method and path of each operation of the resource classes that are named. */
public final class AdminPaths {
    private AdminPaths() {
    }

    public static void main(String[] names) throws Exception {
        var found = new TreeSet<String>();
        for (String nameAndBase : names) {
            String[] parts = nameAndBase.split("=", 2);
            Class<?> type = Class.forName(parts[0], false, AdminPaths.class.getClassLoader());
            String base = parts[1] + "/" + type.getAnnotation(Path.class).value();
            for (Method method : type.getMethods()) {
                Path path = method.getAnnotation(Path.class);
                for (Annotation each : method.getAnnotations()) {
                    HttpMethod verb = each.annotationType().getAnnotation(HttpMethod.class);
                    if (verb != null) {
                        String all = path == null ? base : base + "/" + path.value();
                        found.add(all.replaceAll("/+", "/").replaceAll("(?<=.)/$", "")
                                + " " + verb.value());
                    }
                }
            }
        }
        found.forEach(System.out::println);
    }
}
