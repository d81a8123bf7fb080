import java.lang.annotation.Annotation;
import java.lang.reflect.Method;
import java.util.TreeSet;
import javax.ws.rs.HttpMethod;
import javax.ws.rs.Path;
import javax.ws.rs.QueryParam;

/** Prints path, method and query parameters of each operation of the resource classes that are
 *  named; those without query parameters are left out. */
public final class AdminQueries {
    private AdminQueries() {
    }

    public static void main(String[] names) throws Exception {
        var found = new TreeSet<String>();
        for (String nameAndBase : names) {
            String[] parts = nameAndBase.split("=", 2);
            Class<?> type = Class.forName(parts[0], false, AdminQueries.class.getClassLoader());
            String base = parts[1] + "/" + type.getAnnotation(Path.class).value();
            for (Method method : type.getMethods()) {
                Path path = method.getAnnotation(Path.class);
                var queries = new TreeSet<String>();
                for (Annotation[] of : method.getParameterAnnotations()) {
                    for (Annotation each : of) {
                        if (each instanceof QueryParam) {
                            queries.add(((QueryParam) each).value());
                        }
                    }
                }
                for (Annotation each : method.getAnnotations()) {
                    HttpMethod verb = each.annotationType().getAnnotation(HttpMethod.class);
                    if (verb != null && !queries.isEmpty()) {
                        String all = path == null ? base : base + "/" + path.value();
                        found.add(all.replaceAll("/+", "/").replaceAll("(?<=.)/$", "")
                                + " " + verb.value() + " " + String.join(" ", queries));
                    }
                }
            }
        }
        found.forEach(System.out::println);
    }
}
