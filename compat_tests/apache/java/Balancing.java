import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import com.google.common.collect.Range;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.lang.reflect.Field;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeSet;
import java.util.concurrent.CompletableFuture;
import java.util.stream.Stream;
import org.apache.pulsar.broker.PulsarService;
import org.apache.pulsar.broker.ServiceConfiguration;
import org.apache.pulsar.broker.loadbalance.BrokerFilter;
import org.apache.pulsar.broker.loadbalance.BrokerFilterException;
import org.apache.pulsar.broker.loadbalance.LoadData;
import org.apache.pulsar.broker.loadbalance.LoadSheddingStrategy;
import org.apache.pulsar.broker.loadbalance.ModularLoadManagerStrategy;
import org.apache.pulsar.broker.loadbalance.impl.BundleRangeCache;
import org.apache.pulsar.broker.loadbalance.impl.BundleSplitterTask;
import org.apache.pulsar.broker.loadbalance.impl.LoadManagerShared;
import org.apache.pulsar.broker.loadbalance.impl.SimpleResourceAllocationPolicies;
import org.apache.pulsar.broker.namespace.NamespaceService;
import org.apache.pulsar.common.naming.BundleSplitOption;
import org.apache.pulsar.common.naming.FlowOrQpsEquallyDivideBundleSplitOption;
import org.apache.pulsar.common.naming.NamespaceBundle;
import org.apache.pulsar.common.naming.NamespaceBundleFactory;
import org.apache.pulsar.common.naming.NamespaceBundleSplitAlgorithm;
import org.apache.pulsar.common.naming.NamespaceName;
import org.apache.pulsar.common.policies.data.NamespaceIsolationDataImpl;
import org.apache.pulsar.common.policies.data.stats.TopicStatsImpl;
import org.apache.pulsar.common.policies.impl.NamespaceIsolationPolicies;
import org.apache.pulsar.common.policies.impl.NamespaceIsolationPolicyImpl;
import org.apache.pulsar.common.util.FieldParser;
import org.apache.pulsar.common.util.ObjectMapperFactory;
import org.apache.pulsar.policies.data.loadbalancer.BrokerData;
import org.apache.pulsar.policies.data.loadbalancer.BundleData;
import org.apache.pulsar.policies.data.loadbalancer.LocalBrokerData;
import org.apache.pulsar.policies.data.loadbalancer.NamespaceBundleStats;
import org.apache.pulsar.policies.data.loadbalancer.TimeAverageBrokerData;

/**
 * Asks Apache's classes of load balancing about given loads. Each line of input is a question, an
 * object with "ask"; each line of output is its answer.
 */
public final class Balancing {
    private static final ObjectMapper JSON = ObjectMapperFactory.create();

    public static void main(String[] args) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        StringBuilder out = new StringBuilder();
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            out.append(JSON.writeValueAsString(answer(JSON.readTree(line)))).append('\n');
        }
        System.out.print(out);
        System.out.flush();
        System.exit(0);
    }

    private static JsonNode answer(JsonNode asked) throws Exception {
        ServiceConfiguration conf = new ServiceConfiguration();
        Map<String, String> settings = new HashMap<>();
        if (asked.has("settings")) {
            asked.get("settings").fields().forEachRemaining(e -> settings.put(e.getKey(), e.getValue().asText()));
        }
        FieldParser.update(settings, conf);
        switch (asked.get("ask").asText()) {
            case "shed":
                return shed(asked, conf);
            case "select":
                return select(asked, conf);
            case "filter":
                return filter(asked, conf);
            case "policies":
                return policies(asked);
            case "apart":
                return apart(asked);
            case "splits":
                return splits(asked, conf);
            case "points":
                return points(asked);
            default:
                throw new IllegalArgumentException(asked.toString());
        }
    }

    /** Bundles that a strategy takes off brokers, in each of several rounds. */
    private static JsonNode shed(JsonNode asked, ServiceConfiguration conf) throws Exception {
        LoadSheddingStrategy strategy = (LoadSheddingStrategy)
                Class.forName(asked.get("strategy").asText()).getDeclaredConstructor().newInstance();
        ArrayNode rounds = JSON.createArrayNode();
        for (JsonNode round : asked.get("rounds")) {
            ObjectNode found = rounds.addObject();
            strategy.findBundlesForUnloading(load(round), conf).asMap().forEach((broker, bundles) ->
                    bundles.forEach(found.withArray(broker)::add));
        }
        return rounds;
    }

    private static JsonNode select(JsonNode asked, ServiceConfiguration conf) throws Exception {
        ModularLoadManagerStrategy strategy = (ModularLoadManagerStrategy)
                Class.forName(asked.get("strategy").asText()).getDeclaredConstructor().newInstance();
        LoadData load = load(asked.get("load"));
        Set<String> found = new TreeSet<>();
        for (int at = 0; at < asked.get("times").asInt(); at++) {
            strategy.selectBroker(strings(asked.get("brokers")), new BundleData(10, 1000), load, conf)
                    .ifPresent(found::add);
        }
        return JSON.valueToTree(found);
    }

    /** What is left of brokers; "none" if the filter gives up. */
    private static JsonNode filter(JsonNode asked, ServiceConfiguration conf) throws Exception {
        Set<String> brokers = strings(asked.get("brokers"));
        LoadData load = load(asked.get("load"));
        String kind = asked.get("filter").asText();
        if (kind.equals("topics")) {
            LoadManagerShared.filterBrokersWithLargeTopicCount(brokers, load, conf.getLoadBalancerBrokerMaxTopics());
        } else if (kind.equals("even")) {
            BundleRangeCache ranges = new BundleRangeCache();
            load.getBrokerData().forEach((broker, data) -> ranges.reloadFromBundles(broker, Stream.concat(
                    data.getLocalData().getBundles().stream(), data.getPreallocatedBundleData().keySet().stream())));
            LoadManagerShared.removeMostServicingBrokersForNamespace(asked.get("bundle").asText(), brokers, ranges);
        } else {
            try {
                ((BrokerFilter) Class.forName(kind).getDeclaredConstructor().newInstance())
                        .filter(brokers, new BundleData(10, 1000), load, conf);
            } catch (BrokerFilterException e) {
                return JSON.getNodeFactory().textNode("none");
            }
        }
        return JSON.valueToTree(new TreeSet<>(brokers));
    }

    /** The brokers that isolation policies allow. */
    private static JsonNode policies(JsonNode asked) throws Exception {
        Map<String, NamespaceIsolationDataImpl> given = new HashMap<>();
        var fields = asked.get("policies").fields();
        while (fields.hasNext()) {
            var each = fields.next();
            given.put(each.getKey(), JSON.treeToValue(each.getValue(), NamespaceIsolationDataImpl.class));
        }
        Policies policies = allocate(Policies.class);
        policies.all = new NamespaceIsolationPolicies(given);
        LoadData load = load(asked.get("load"));
        NamespaceBundle bundle = bundle(asked.get("bundle").asText(), null);
        bundle.setHasNonPersistentTopic(asked.get("non_persistent").asBoolean());
        Set<String> found = new HashSet<>();
        LoadManagerShared.applyNamespacePolicies(bundle, policies, found, strings(asked.get("brokers")),
                new LoadManagerShared.BrokerTopicLoadingPredicate() {
                    @Override
                    public boolean isEnablePersistentTopics(String broker) {
                        return load.getBrokerData().get(broker).getLocalData().isPersistentTopicsEnabled();
                    }

                    @Override
                    public boolean isEnableNonPersistentTopics(String broker) {
                        return load.getBrokerData().get(broker).getLocalData().isNonPersistentTopicsEnabled();
                    }
                });
        return JSON.valueToTree(new TreeSet<>(found));
    }

    /** Brokers that an anti-affinity group leaves, and whether the first may give its bundle away. */
    private static JsonNode apart(JsonNode asked) throws Exception {
        Map<String, Integer> counts = new HashMap<>();
        asked.get("counts").fields().forEachRemaining(e -> counts.put(e.getKey(), e.getValue().asInt()));
        Map<String, String> domains = new HashMap<>();
        asked.get("domains").fields().forEachRemaining(e -> domains.put(e.getKey(), e.getValue().asText()));
        Set<String> brokers = strings(asked.get("brokers"));
        ServiceConfiguration conf = new ServiceConfiguration();
        conf.setFailureDomainsEnabled(!domains.isEmpty());
        Service service = allocate(Service.class);
        service.conf = conf;
        boolean leaves = (boolean) call("shouldAntiAffinityNamespaceUnload", asked.get("owner").asText(),
                new HashSet<>(brokers), counts);
        call("filterAntiAffinityGroupOwnedBrokers", service, brokers, domains, counts);
        ObjectNode found = JSON.createObjectNode();
        found.set("brokers", JSON.valueToTree(new TreeSet<>(brokers)));
        found.put("leaves", leaves);
        return found;
    }

    private static Object call(String name, Object... arguments) throws Exception {
        for (Method method : LoadManagerShared.class.getDeclaredMethods()) {
            if (method.getName().equals(name) && matches(method.getParameterTypes(), arguments)) {
                method.setAccessible(true);
                try {
                    return method.invoke(null, arguments);
                } catch (InvocationTargetException e) {
                    throw new IllegalStateException(e.getCause());
                }
            }
        }
        throw new NoSuchMethodException(name);
    }

    private static boolean matches(Class<?>[] types, Object[] arguments) {
        boolean fits = types.length == arguments.length;
        for (int at = 0; fits && at < types.length; at++) {
            fits = types[at].isInstance(arguments[at]);
        }
        return fits;
    }

    private static JsonNode splits(JsonNode asked, ServiceConfiguration conf) throws Exception {
        Service service = allocate(Service.class);
        service.conf = conf;
        service.namespaces = allocate(Namespaces.class);
        service.namespaces.counts = asked.get("counts");
        return JSON.valueToTree(new BundleSplitterTask().findBundlesToSplit(load(asked.get("load")), service));
    }

    /** Where a bundle is split. */
    private static JsonNode points(JsonNode asked) throws Exception {
        Namespaces service = allocate(Namespaces.class);
        Hashes hashes = allocate(Hashes.class);
        hashes.of = new HashMap<>();
        service.topics = new ArrayList<>();
        Map<String, TopicStatsImpl> stats = new HashMap<>();
        for (JsonNode topic : asked.get("topics")) {
            String name = "persistent://t/n/" + service.topics.size();
            service.topics.add(name);
            hashes.of.put(name, topic.get(0).asLong());
            TopicStatsImpl one = new TopicStatsImpl();
            one.msgRateIn = topic.get(1).asDouble();
            one.msgThroughputIn = topic.get(2).asDouble();
            stats.put(name, one);
        }
        NamespaceBundle bundle = new NamespaceBundle(NamespaceName.get("t/n"),
                Range.closedOpen(asked.get("low").asLong(), asked.get("high").asLong()), hashes);
        List<Long> given = new ArrayList<>();
        asked.get("given").forEach(each -> given.add(each.asLong()));
        String algorithm = asked.get("algorithm").asText();
        BundleSplitOption option = algorithm.startsWith("flow")
                ? new FlowOrQpsEquallyDivideBundleSplitOption(service, bundle, given, stats,
                        asked.get("rate").asInt(), asked.get("mb").asInt(), asked.get("difference").asInt())
                : new BundleSplitOption(service, bundle, given);
        List<Long> found = NamespaceBundleSplitAlgorithm.of(algorithm).getSplitBoundary(option).get();
        return JSON.valueToTree(found == null ? List.of() : found);
    }

    private static LoadData load(JsonNode given) throws Exception {
        LoadData load = new LoadData();
        var bundles = given.get("bundles").fields();
        while (bundles.hasNext()) {
            var each = bundles.next();
            load.getBundleData().put(each.getKey(), JSON.treeToValue(each.getValue(), BundleData.class));
        }
        NamespaceBundleStats assumed = new NamespaceBundleStats();
        var brokers = given.get("brokers").fields();
        while (brokers.hasNext()) {
            var each = brokers.next();
            LocalBrokerData local = JSON.treeToValue(each.getValue().get("report"), LocalBrokerData.class);
            BrokerData data = new BrokerData(local);
            TimeAverageBrokerData averages = new TimeAverageBrokerData();
            averages.reset(local.getLastStats().keySet(), load.getBundleData(), assumed);
            data.setTimeAverageData(averages);
            each.getValue().get("chosen").forEach(bundle -> data.getPreallocatedBundleData()
                    .put(bundle.asText(), load.getBundleData().get(bundle.asText())));
            load.getBrokerData().put(each.getKey(), data);
        }
        given.get("unloaded").forEach(bundle -> load.getRecentlyUnloadedBundles().put(bundle.asText(), 1L));
        return load;
    }

    private static NamespaceBundle bundle(String name, NamespaceBundleFactory factory) {
        String[] range = name.substring(name.lastIndexOf('/') + 1).split("_");
        return new NamespaceBundle(NamespaceName.get(name.substring(0, name.lastIndexOf('/'))),
                Range.closedOpen(Long.decode(range[0]), Long.decode(range[1])),
                factory == null ? allocate(Hashes.class) : factory);
    }

    private static Set<String> strings(JsonNode given) {
        Set<String> found = new HashSet<>();
        given.forEach(each -> found.add(each.asText()));
        return found;
    }

    /** An object without its constructor, which would start a broker. */
    private static <T> T allocate(Class<T> type) {
        try {
            Field field = Class.forName("sun.misc.Unsafe").getDeclaredField("theUnsafe");
            field.setAccessible(true);
            Object unsafe = field.get(null);
            return type.cast(unsafe.getClass().getMethod("allocateInstance", Class.class).invoke(unsafe, type));
        } catch (ReflectiveOperationException e) {
            throw new IllegalStateException(e);
        }
    }

    private static final class Service extends PulsarService {
        private ServiceConfiguration conf;
        private Namespaces namespaces;

        private Service() {
            super(null);
        }

        @Override
        public ServiceConfiguration getConfiguration() {
            return conf;
        }

        @Override
        public NamespaceService getNamespaceService() {
            return namespaces;
        }
    }

    private static final class Namespaces extends NamespaceService {
        private JsonNode counts;
        private List<String> topics;

        private Namespaces() {
            super(null);
        }

        @Override
        public int getBundleCount(NamespaceName namespace) {
            return counts.get(namespace.toString()).asInt();
        }

        @Override
        public CompletableFuture<List<String>> getOwnedTopicListForNamespaceBundle(NamespaceBundle bundle) {
            return CompletableFuture.completedFuture(topics);
        }
    }

    private static final class Hashes extends NamespaceBundleFactory {
        private Map<String, Long> of;

        private Hashes() {
            super(null, null);
        }

        @Override
        public long getLongHashCode(String name) {
            return of.get(name);
        }
    }

    private static final class Policies extends SimpleResourceAllocationPolicies {
        private NamespaceIsolationPolicies all;

        private Policies() {
            super(null);
        }

        private NamespaceIsolationPolicyImpl of(NamespaceName namespace) {
            return (NamespaceIsolationPolicyImpl) all.getPolicyByNamespace(namespace);
        }

        @Override
        public boolean areIsolationPoliciesPresent(NamespaceName namespace) {
            return of(namespace) != null;
        }

        @Override
        public boolean isPrimaryBroker(NamespaceName namespace, String broker) {
            return of(namespace) != null && of(namespace).isPrimaryBroker(broker);
        }

        @Override
        public boolean isSecondaryBroker(NamespaceName namespace, String broker) {
            return of(namespace) != null && of(namespace).isSecondaryBroker(broker);
        }

        @Override
        public boolean isSharedBroker(String broker) {
            return all.isSharedBroker(broker);
        }

        @Override
        public boolean shouldFailoverToSecondaries(NamespaceName namespace, int primaries) {
            return of(namespace) != null && of(namespace).shouldFailover(primaries);
        }
    }
}
