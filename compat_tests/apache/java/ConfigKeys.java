import java.io.DataInputStream;
import java.io.File;
import java.io.IOException;
import java.io.InputStream;
import java.lang.reflect.Field;
import java.lang.reflect.Method;
import java.lang.reflect.Modifier;
import java.net.URL;
import java.net.URLClassLoader;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Comparator;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.TreeMap;
import java.util.TreeSet;
import org.apache.bookkeeper.conf.ClientConfiguration;
import org.apache.bookkeeper.conf.ServerConfiguration;
import org.apache.pulsar.common.configuration.FieldContext;

/**
 * Prints the keys of Apache's configuration files. The argument is the folder with the jars of the
 * proxy and of the command line's tools. A line is key, type, flags and default, with a tab
 * between them.
 */
public final class ConfigKeys {
    private static final String KEY = "[a-z]+[A-Z][A-Za-z]*|[a-zA-Z]+_[A-Za-z_0-9]+";
    private static final String BOOKIE = "org.apache.bookkeeper.";
    private static final String[] STORAGE = {
        "bookie.storage.ldb.DbLedgerStorage",
        "bookie.storage.ldb.SingleDirectoryDbLedgerStorage",
        "bookie.storage.ldb.KeyValueStorageRocksDB",
        "client.ITopologyAwareEnsemblePlacementPolicy",
        "client.TopologyAwareEnsemblePlacementPolicy",
        "client.RackawareEnsemblePlacementPolicyImpl",
        "client.RegionAwareEnsemblePlacementPolicy",
        "conf.AbstractConfiguration",
        "conf.ClientConfiguration",
        "conf.ServerConfiguration",
        "stats.prometheus.PrometheusMetricsProvider",
    };
    private static final String AUTHENTICATION =
            "org.apache.pulsar.broker.authentication.AuthenticationProvider";
    private static final String[] TOOLS = {
        "org.apache.pulsar.admin.cli.PulsarAdminPropertiesProvider",
        "org.apache.pulsar.admin.cli.PulsarAdminTool",
        "org.apache.pulsar.admin.cli.PulsarAdminTool$RootParams",
        "org.apache.pulsar.client.cli.PulsarClientPropertiesProvider",
        "org.apache.pulsar.client.cli.PulsarClientTool",
        "org.apache.pulsar.client.cli.PulsarClientTool$RootParams",
    };

    private static final Map<String, String> ASKED = new TreeMap<>();

    private ConfigKeys() {
    }

    public static void main(String[] folder) throws Exception {
        var jars = new ArrayList<URL>();
        for (File each : new File(folder[0]).listFiles()) {
            jars.add(each.toURI().toURL());
        }
        try (var tools = new URLClassLoader(jars.toArray(new URL[0]))) {
            print("broker.conf", annotated("org.apache.pulsar.broker.ServiceConfiguration", tools));
            print("proxy.conf",
                    annotated("org.apache.pulsar.proxy.server.ProxyConfiguration", tools));
            print("bookkeeper.conf", bookKeeper());
            print("authentication", authentication());
            print("client.conf", written(tools));
        }
    }

    private static void print(String file, Map<String, String> found) {
        System.out.println("[" + file + "]");
        found.values().forEach(System.out::println);
    }

    private static String line(String... cells) {
        return String.join("\t", cells).stripTrailing();
    }

    private static String text(Object value) {
        if (value instanceof Optional<?> maybe) {
            return maybe.map(String::valueOf).orElse("");
        }
        String all = value == null ? "" : String.valueOf(value);
        boolean isListed = value instanceof Iterable || value instanceof Map;
        return isListed ? all.substring(1, all.length() - 1).replace(", ", ",") : all;
    }

    /** Fields with Pulsar's annotation. */
    private static Map<String, String> annotated(String name, ClassLoader loader) throws Exception {
        Class<?> type = Class.forName(name, true, loader);
        Object defaults = type.getDeclaredConstructor().newInstance();
        var found = new TreeMap<String, String>();
        for (Field field : type.getDeclaredFields()) {
            FieldContext context = field.getAnnotation(FieldContext.class);
            if (context == null) {
                continue;
            }
            field.setAccessible(true);
            List<String> flags = new ArrayList<>();
            if (context.dynamic()) {
                flags.add("dynamic");
            }
            if (context.deprecated() || field.isAnnotationPresent(Deprecated.class)) {
                flags.add("deprecated");
            }
            if (context.required()) {
                flags.add("required");
            }
            String kind = field.getGenericType().getTypeName().replaceAll("[a-z]+\\.", "");
            found.put(field.getName(), line(field.getName(), kind.replaceAll("\\w+\\$", ""),
                    String.join(",", flags), text(field.get(defaults))));
        }
        return found;
    }

    /** Constants that are keys, and what the getters of both configurations look up. */
    private static Map<String, String> bookKeeper() throws Exception {
        var found = new TreeMap<String, String>();
        for (String name : STORAGE) {
            constants(name(name), found);
        }
        ask(new Client());
        ask(new Server());
        found.putAll(ASKED);
        return found;
    }

    private static Class<?> name(String end) {
        try {
            return Class.forName(BOOKIE + end);
        } catch (ClassNotFoundException missing) {
            throw new IllegalStateException(missing);
        }
    }

    private static void constants(Class<?> type, Map<String, String> found) throws Exception {
        for (Field field : type.getDeclaredFields()) {
            boolean isConstant = Modifier.isStatic(field.getModifiers());
            if (isConstant && field.getType() == String.class) {
                field.setAccessible(true);
                String value = (String) field.get(null);
                if (value != null && value.matches(KEY)) {
                    found.put(value, value);
                }
            }
        }
    }

    /** Notes which keys a getter asks for, with their defaults: of several getters of one key the
     * last one's, by name, that has a default. The virtual machine gives them in any order.
     */
    private static void ask(Object configuration) {
        Method[] methods = configuration.getClass().getSuperclass().getMethods();
        Arrays.sort(methods, Comparator.comparing(Method::getName));
        for (Method method : methods) {
            boolean isGetter = method.getName().matches("(get|is|has).*|.*(Enabled|Sync|Allowed)");
            if (isGetter && method.getParameterCount() == 0
                    && !Modifier.isStatic(method.getModifiers())) {
                try {
                    method.invoke(configuration);
                } catch (ReflectiveOperationException | RuntimeException refused) {
                    continue; // what it has asked for before that is noted
                }
            }
        }
    }

    private static <T> T noted(String key, String kind, T value) {
        if (key.matches("[A-Za-z_0-9]+") && (value != null || !ASKED.containsKey(key))) {
            ASKED.put(key, line(key, kind, "", text(value)));
        }
        return value;
    }

    private static final class Server extends ServerConfiguration {
        @Override public boolean getBoolean(String key, boolean value) {
            return noted(key, "boolean", value);
        }

        @Override public Boolean getBoolean(String key, Boolean value) {
            return noted(key, "boolean", value);
        }

        @Override public int getInt(String key, int value) {
            return noted(key, "int", value);
        }

        @Override public Integer getInteger(String key, Integer value) {
            return noted(key, "int", value);
        }

        @Override public long getLong(String key, long value) {
            return noted(key, "long", value);
        }

        @Override public Long getLong(String key, Long value) {
            return noted(key, "long", value);
        }

        @Override public float getFloat(String key, float value) {
            return noted(key, "float", value);
        }

        @Override public Float getFloat(String key, Float value) {
            return noted(key, "float", value);
        }

        @Override public double getDouble(String key, double value) {
            return noted(key, "double", value);
        }

        @Override public Double getDouble(String key, Double value) {
            return noted(key, "double", value);
        }

        @Override public String getString(String key, String value) {
            return noted(key, "String", value);
        }

        @Override public String getString(String key) {
            return noted(key, "String", null);
        }
    }

    private static final class Client extends ClientConfiguration {
        @Override public boolean getBoolean(String key, boolean value) {
            return noted(key, "boolean", value);
        }

        @Override public Boolean getBoolean(String key, Boolean value) {
            return noted(key, "boolean", value);
        }

        @Override public int getInt(String key, int value) {
            return noted(key, "int", value);
        }

        @Override public Integer getInteger(String key, Integer value) {
            return noted(key, "int", value);
        }

        @Override public long getLong(String key, long value) {
            return noted(key, "long", value);
        }

        @Override public Long getLong(String key, Long value) {
            return noted(key, "long", value);
        }

        @Override public float getFloat(String key, float value) {
            return noted(key, "float", value);
        }

        @Override public Float getFloat(String key, Float value) {
            return noted(key, "float", value);
        }

        @Override public double getDouble(String key, double value) {
            return noted(key, "double", value);
        }

        @Override public Double getDouble(String key, Double value) {
            return noted(key, "double", value);
        }

        @Override public String getString(String key, String value) {
            return noted(key, "String", value);
        }

        @Override public String getString(String key) {
            return noted(key, "String", null);
        }
    }

    /** What the providers read of `broker.conf` and `proxy.conf` by themselves. */
    private static Map<String, String> authentication() throws Exception {
        var found = new TreeMap<String, String>();
        constants(Class.forName(AUTHENTICATION + "Token"), found);
        constants(Class.forName(AUTHENTICATION + "Basic"), found);
        return found;
    }

    /** Names of keys among the texts of the command line's tools, and in their annotations. */
    private static Map<String, String> written(ClassLoader loader) throws Exception {
        var found = new TreeMap<String, String>();
        for (String name : TOOLS) {
            for (String each : texts(name, loader)) {
                if (each.matches(KEY)) {
                    found.put(each, each);
                }
            }
            if (!name.endsWith("$RootParams")) {
                continue;
            }
            for (Field field : Class.forName(name, false, loader).getDeclaredFields()) {
                var option = field.getAnnotation(picocli.CommandLine.Option.class);
                if (option != null && !option.descriptionKey().isEmpty()) {
                    found.put(option.descriptionKey(), option.descriptionKey());
                }
            }
        }
        found.keySet().removeAll(List.of("generate_documentation", "topicPolicies")); // commands
        return found;
    }

    /** The text constants in a class's file. */
    private static TreeSet<String> texts(String name, ClassLoader loader) throws IOException {
        var found = new TreeSet<String>();
        String path = name.replace('.', '/') + ".class";
        try (InputStream file = loader.getResourceAsStream(path);
                var data = new DataInputStream(file)) {
            data.skipNBytes(8);
            int count = data.readUnsignedShort();
            String[] words = new String[count];
            var used = new ArrayList<Integer>();
            for (int index = 1; index < count; index++) {
                switch (data.readUnsignedByte()) {
                    case 1 -> words[index] = data.readUTF();
                    case 8 -> used.add(data.readUnsignedShort());
                    case 7, 16, 19, 20 -> data.skipNBytes(2);
                    case 15 -> data.skipNBytes(3);
                    case 5, 6 -> {
                        data.skipNBytes(8);
                        index++;
                    }
                    default -> data.skipNBytes(4);
                }
            }
            used.forEach(each -> found.add(words[each]));
        }
        return found;
    }
}
