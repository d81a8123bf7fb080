import com.fasterxml.jackson.databind.ObjectMapper;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collection;
import java.util.Comparator;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import org.apache.pulsar.client.admin.GetStatsOptions;
import org.apache.pulsar.client.admin.ListNamespaceTopicsOptions;
import org.apache.pulsar.client.admin.ListTopicsOptions;
import org.apache.pulsar.client.admin.LongRunningProcessStatus;
import org.apache.pulsar.client.admin.PulsarAdmin;
import org.apache.pulsar.client.admin.PulsarAdminException;
import org.apache.pulsar.client.admin.Topics;
import org.apache.pulsar.client.api.Message;
import org.apache.pulsar.client.api.MessageId;
import org.apache.pulsar.client.api.Producer;
import org.apache.pulsar.client.api.PulsarClient;
import org.apache.pulsar.client.api.Schema;
import org.apache.pulsar.client.api.TransactionIsolationLevel;
import org.apache.pulsar.client.api.transaction.TxnID;
import org.apache.pulsar.common.naming.TopicDomain;
import org.apache.pulsar.common.naming.TopicVersion;
import org.apache.pulsar.common.policies.data.*;
import org.apache.pulsar.common.policies.data.impl.DispatchRateImpl;
import org.apache.pulsar.common.protocol.schema.PostSchemaPayload;
import org.apache.pulsar.common.schema.SchemaInfo;
import org.apache.pulsar.common.util.ObjectMapperFactory;

/**
 * Calls every method of Apache's admin client that waits for its answer, and prints a JSON object a
 * line: the method, and what it gave or what it threw. Arguments: the web and the binary address.
 *
 * The methods of a setting come one after the other (get, set, get, remove, get); what takes its
 * objects away comes last.
 */
public final class Administrator {
    private static final ObjectMapper JSON = ObjectMapperFactory.getMapper().getObjectMapper();
    private static final String TOPIC = "persistent://java/drive/t";
    private static final String RANGE = "0x00000000_0x40000000";
    /** What would end the server, or wait for another cluster. */
    private static final Set<String> LEFT_OUT = Set.of("shutDownBrokerGracefully");
    /** What takes away, or holds up, what others need. */
    private static final List<String> LAST = List.of("clear", "skipAll", "expire", "split", "unload",
            "unsubscribe", "terminate", "truncate", "deleteSubscription", "delete");
    private static final Map<Class<?>, Object> VALUES = new HashMap<>();

    private final Map<String, List<String>> names = new HashMap<>();

    private Administrator() {
        names.put("clusters", List.of("other", "policy"));
        names.put("tenants", List.of("java"));
        names.put("namespaces", List.of("java/drive", "word", "other"));
        names.put("topics", List.of(TOPIC, "sub", "role"));
        names.put("topicPolicies", List.of(TOPIC));
        names.put("globalPolicies", List.of(TOPIC));
        names.put("bookies", List.of("127.0.0.1:9999", "group"));
        names.put("brokers", List.of("maxConcurrentLookupRequest", "1000"));
        names.put("brokerStats", List.of("default"));
        names.put("resourcegroups", List.of("drivers"));
        names.put("resourceQuotas", List.of("java/drive", RANGE));
        names.put("schemas", List.of("persistent://java/drive/schema"));
        names.put("nonPersistentTopics", List.of("non-persistent://java/drive/n", RANGE));
        names.put("transactions", List.of("public/default", "sub", "word"));
    }

    private static <T> void value(Class<T> type, T value) {
        VALUES.put(type, value);
    }

    static {
        value(boolean.class, true);
        value(Boolean.class, true);
        value(int.class, 5);
        value(Integer.class, 5);
        value(long.class, 5L);
        value(Long.class, 5L);
        value(TimeUnit.class, TimeUnit.SECONDS);
        value(Optional.class, Optional.empty());
        value(LinkedHashSet.class, new LinkedHashSet<>(List.of("standalone")));
        value(MessageId.class, MessageId.earliest);
        value(TxnID.class, new TxnID(0, 0));
        value(TopicDomain.class, TopicDomain.persistent);
        value(TopicVersion.class, TopicVersion.V2);
        value(TransactionIsolationLevel.class, TransactionIsolationLevel.READ_COMMITTED);
        value(GetStatsOptions.class, GetStatsOptions.builder().getPreciseBacklog(true).build());
        value(ListTopicsOptions.class, ListTopicsOptions.builder().includeSystemTopic(true).build());
        value(ListNamespaceTopicsOptions.class,
                ListNamespaceTopicsOptions.builder().includeSystemTopic(true).build());
        value(BacklogQuota.class, BacklogQuota.builder().limitSize(1 << 20)
                .retentionPolicy(BacklogQuota.RetentionPolicy.consumer_backlog_eviction).build());
        value(BacklogQuota.BacklogQuotaType.class, BacklogQuota.BacklogQuotaType.destination_storage);
        value(DispatchRate.class, DispatchRateImpl.builder().dispatchThrottlingRateInMsg(7)
                .dispatchThrottlingRateInByte(7000).ratePeriodInSecond(1).build());
        value(PublishRate.class, new PublishRate(9, 9000));
        value(SubscribeRate.class, new SubscribeRate(3, 30));
        value(RetentionPolicies.class, new RetentionPolicies(11, 12));
        value(PersistencePolicies.class, new PersistencePolicies(1, 1, 1, 2.0));
        value(OffloadPolicies.class, OffloadPolicies.builder()
                .managedLedgerOffloadDriver("filesystem").build());
        value(InactiveTopicPolicies.class, new InactiveTopicPolicies(
                InactiveTopicDeleteMode.delete_when_no_subscriptions, 600, false));
        value(DelayedDeliveryPolicies.class,
                DelayedDeliveryPolicies.builder().active(true).tickTime(500).build());
        value(AutoTopicCreationOverride.class, AutoTopicCreationOverride.builder()
                .allowAutoTopicCreation(true).topicType("partitioned").defaultNumPartitions(2).build());
        value(AutoSubscriptionCreationOverride.class,
                AutoSubscriptionCreationOverride.builder().allowAutoSubscriptionCreation(true).build());
        value(NamespaceIsolationData.class, NamespaceIsolationData.builder()
                .namespaces(List.of("java/else.*")).primary(List.of("nobody.*")).secondary(List.of())
                .autoFailoverPolicy(AutoFailoverPolicyData.builder()
                        .policyType(AutoFailoverPolicyType.min_available)
                        .parameters(Map.of("min_limit", "1", "usage_threshold", "80")).build())
                .build());
        value(FailureDomain.class, FailureDomain.builder().brokers(Set.of("nobody:8080")).build());
        value(TenantInfo.class, TenantInfo.builder().adminRoles(Set.of("boss"))
                .allowedClusters(Set.of("standalone")).build());
        ResourceQuota quota = new ResourceQuota();  // the default one, which is set too
        quota.setMsgRateIn(40);
        quota.setMsgRateOut(120);
        quota.setBandwidthIn(100000);
        quota.setBandwidthOut(300000);
        quota.setMemory(80);
        quota.setDynamic(true);
        value(ResourceQuota.class, quota);
        ResourceGroup group = new ResourceGroup();
        group.setDispatchRateInBytes(100L);
        value(ResourceGroup.class, group);
        value(EntryFilters.class, new EntryFilters("none"));
        value(ClusterData.class, ClusterData.builder().serviceUrl("http://other:8080")
                .brokerServiceUrl("pulsar://other:6650").build());
        value(ClusterPolicies.ClusterUrl.class, new ClusterPolicies.ClusterUrl(
                "http://other:8080", null, "pulsar://other:6650", null));
        value(Policies.class, new Policies());
        value(BundlesData.class, BundlesData.builder().numBundles(4).build());
        value(BookieInfo.class, BookieInfo.builder().rack("rack").hostname("host").build());
        value(BookieAffinityGroupData.class,
                BookieAffinityGroupData.builder().bookkeeperAffinityGroupPrimary("a").build());
        value(SchemaInfo.class, Schema.STRING.getSchemaInfo());
        value(PostSchemaPayload.class, new PostSchemaPayload("STRING", "", Map.of("k", "v")));
    }

    public static void main(String[] arguments) throws Exception {
        try (PulsarAdmin admin = PulsarAdmin.builder().serviceHttpUrl(arguments[0]).build();
                PulsarClient client = PulsarClient.builder().serviceUrl(arguments[1]).build()) {
            Administrator driver = new Administrator();
            driver.prepare(admin, client);
            driver.drive("tenants", admin.tenants());
            driver.drive("clusters", admin.clusters());
            driver.drive("resourcegroups", admin.resourcegroups());
            driver.prepare(admin, client);
            driver.drive("topics", admin.topics());
            driver.prepare(admin, client);
            driver.drive("topicPolicies", admin.topicPolicies());
            driver.drive("globalPolicies", admin.topicPolicies(true));
            driver.drive("nonPersistentTopics", admin.nonPersistentTopics());
            driver.drive("schemas", admin.schemas());
            driver.drive("bookies", admin.bookies());
            driver.drive("brokers", admin.brokers());
            driver.drive("brokerStats", admin.brokerStats());
            driver.drive("resourceQuotas", admin.resourceQuotas());
            driver.drive("transactions", admin.transactions());
            driver.prepare(admin, client);
            driver.drive("namespaces", admin.namespaces());
            clear(admin);
        }
    }

    /** The objects that the calls are about, as far as they aren't there. */
    private void prepare(PulsarAdmin admin, PulsarClient client) throws Exception {
        unlessThere(() -> admin.tenants().createTenant("java", (TenantInfo) VALUES.get(TenantInfo.class)));
        unlessThere(() -> admin.namespaces().createNamespace("java/drive", 4));
        unlessThere(() -> admin.topics().createNonPartitionedTopic(TOPIC));
        unlessThere(() -> admin.topics().createSubscription(TOPIC, "sub", MessageId.earliest));
        // Its name is part of the sizes that are told; one that the server gives grows with its number.
        try (Producer<byte[]> producer = client.newProducer().topic(TOPIC).producerName("its-producer-1")
                .enableBatching(false).create()) {
            for (int i = 0; i < 3; i++) {
                producer.newMessage().key("k").property("p", "q").value(new byte[] {'a'}).send();
            }
        }
    }

    /** Other tests find the server as before. */
    private static void clear(PulsarAdmin admin) throws PulsarAdminException {
        for (String topic : admin.topics().getList("java/drive")) {
            admin.topics().delete(topic, true);
        }
        for (String topic : admin.topics().getPartitionedTopicList("java/drive")) {
            admin.topics().deletePartitionedTopic(topic, true);
        }
        admin.namespaces().deleteNamespace("java/drive");
        admin.tenants().deleteTenant("java");
        admin.clusters().updatePeerClusterNames("other", null);
        admin.clusters().deleteCluster("other");
    }

    private interface Call {
        void run() throws PulsarAdminException;
    }

    private static void unlessThere(Call call) throws PulsarAdminException {
        try {
            call.run();
        } catch (PulsarAdminException.ConflictException there) {
            return;
        }
    }

    private void drive(String part, Object face) throws Exception {
        Class<?> type = face.getClass().getInterfaces()[0];
        List<Method> methods = new ArrayList<>();
        for (Method each : type.getMethods()) {
            if (each.getReturnType() != CompletableFuture.class && !LEFT_OUT.contains(each.getName())) {
                methods.add(each);
            }
        }
        methods.sort(Comparator.comparing(Administrator::stage).thenComparing(Administrator::stem)
                .thenComparing(Administrator::step).thenComparing(Method::getName).thenComparing(Method::getParameterCount)
                .thenComparing(each -> Arrays.toString(each.getParameterTypes())));
        List<Method> steps = new ArrayList<>();
        for (int i = 0; i < methods.size(); i++) {
            Method each = methods.get(i);
            steps.add(each);
            boolean isLastChange = step(each) == 1 && (i + 1 == methods.size() || step(methods.get(i + 1)) != 1
                    || !stem(methods.get(i + 1)).equals(stem(each)));
            if (isLastChange) {  // what it changed is read
                methods.stream().filter(get -> step(get) == 0 && stem(get).equals(stem(each))).forEach(steps::add);
            }
        }
        for (Method each : steps) {
            call(part, face, each);
        }
    }

    private static int stage(Method method) {
        for (int i = 0; i < LAST.size(); i++) {
            if (method.getName().startsWith(LAST.get(i))) {
                return i + 1;
            }
        }
        return 0;
    }

    private static int step(Method method) {
        String name = method.getName();
        if (name.startsWith("remove") || name.startsWith("revoke") || name.startsWith("reset")) {
            return 2;
        }
        return name.startsWith("get") || name.startsWith("list") || name.startsWith("is") ? 0 : 1;
    }

    private static String stem(Method method) {
        return method.getName().replaceFirst("^(get|set|remove|update|create|grant|revoke|enable|disable|add|reset)", "")
                .replaceFirst("s$", "");
    }

    private void call(String part, Object face, Method method) throws Exception {
        if (face instanceof Topics topics && method.getName().equals("delete")) {
            unlessUsed(topics);
        }
        Map<String, Object> told = new LinkedHashMap<>();
        List<String> kinds = new ArrayList<>();
        for (Class<?> each : method.getParameterTypes()) {
            kinds.add(each.getSimpleName());
        }
        told.put("method", part + "." + method.getName() + "(" + String.join(",", kinds) + ")");
        try {
            Object found = plain(method.invoke(face, given(part, method)));
            told.put("gave", found == null ? "null" : found);
        } catch (InvocationTargetException thrown) {
            Throwable cause = thrown.getCause();
            told.put("threw", cause.getClass().getSimpleName());
            if (cause instanceof PulsarAdminException refused) {
                told.put("status", refused.getStatusCode());
                told.put("reason", String.valueOf(refused.getHttpError()));
            } else {
                told.put("reason", String.valueOf(cause.getMessage()));
            }
        }
        System.out.println(JSON.writeValueAsString(told));
    }

    /** Waits until the compaction that was triggered reads no more. */
    private static void unlessUsed(Topics topics) throws Exception {
        for (int i = 0; i < 100; i++) {
            try {
                TopicStats stats = topics.getStats(TOPIC);
                if (stats.getSubscriptions().values().stream().allMatch(each -> each.getConsumers().isEmpty())) {
                    return;
                }
            } catch (PulsarAdminException.NotFoundException gone) {
                return;
            }
            Thread.sleep(50);
        }
    }

    private Object[] given(String part, Method method) {
        List<Object> found = new ArrayList<>();
        int words = 0;
        Class<?>[] types = method.getParameterTypes();
        for (int i = 0; i < types.length; i++) {
            if (types[i] == long.class && method.getName().endsWith("ById")) {
                found.add(1L << 40);  // where no server has a message
            } else if (types[i] == int.class && method.getName().endsWith("MessageTTL")) {
                found.add(3600);  // what is older goes at once, and other calls read the messages
            } else if (types[i] == String.class) {
                found.add(word(part, method, words++));
            } else {
                found.add(of(types[i], method.getGenericParameterTypes()[i].getTypeName()));
            }
        }
        return found.toArray();
    }

    private String word(String part, Method method, int at) {
        String name = method.getName();
        if (name.contains("Bundle") && at == 1 || name.equals("getListInBundle") && at == 1) {
            return RANGE;
        }
        if (name.equals("getTopicHashPositions") && at == 1) {
            return RANGE;
        }
        if (name.equals("getNamespaces") || name.equals("getAntiAffinityNamespaces") && at == 0) {
            return "java";
        }
        if (name.equals("getAntiAffinityNamespaces")) {
            return at == 1 ? "standalone" : "word";
        }
        if (name.startsWith("split") && at == 2) {
            return "range_equally_divide";
        }
        if (part.equals("brokers") && name.equals("getOwnedNamespaces")) {
            return at == 0 ? "standalone" : "nobody:8080";
        }
        if (part.equals("brokers") && name.equals("getActiveBrokers")) {
            return "standalone";
        }
        if (part.equals("topics") && (name.startsWith("get") && name.contains("List") || name.equals("getList"))) {
            return "java/drive";
        }
        if (part.equals("topics") && name.contains("Partition")) {
            return TOPIC + "-of-some";
        }
        if (part.equals("nonPersistentTopics") && name.contains("List")) {
            return "java/drive";
        }
        List<String> words = names.get(part);
        return words.get(Math.min(at, words.size() - 1));
    }

    private static Object of(Class<?> type, String generic) {
        if (VALUES.containsKey(type)) {
            return VALUES.get(type);
        }
        if (type.isEnum()) {
            return type.getEnumConstants()[0];
        }
        if (type == Set.class) {
            return generic.contains("AuthAction") ? Set.of(AuthAction.produce)
                    : generic.contains("SubscriptionType") ? Set.of(org.apache.pulsar.client.api.SubscriptionType.Shared)
                    : Set.of("standalone");
        }
        if (type == List.class) {
            return generic.contains("Long") ? List.of(1L) : List.of("standalone");
        }
        if (type == Map.class) {
            return generic.contains("QueryParam") ? Map.of() : Map.of("k", "v");
        }
        System.err.println("no value for " + generic);
        return null;
    }

    private static Object plain(Object value) throws Exception {
        if (value instanceof MessageId || value instanceof LongRunningProcessStatus) {
            return value instanceof MessageId ? value.toString() : JSON.valueToTree(value);
        }
        if (value instanceof Message<?> message) {
            return Map.of("data", new String(message.getData()), "key", String.valueOf(message.getKey()),
                    "properties", message.getProperties());
        }
        if (value instanceof Collection<?> several) {
            List<Object> found = new ArrayList<>();
            for (Object each : several) {
                found.add(plain(each));
            }
            if (value instanceof Set<?>) {
                found.sort(Comparator.comparing(String::valueOf));
            }
            return found;
        }
        if (value instanceof SchemaInfo schema) {
            return Map.of("name", schema.getName(), "type", String.valueOf(schema.getType()),
                    "properties", schema.getProperties(), "schema", new String(schema.getSchema()));
        }
        return value == null ? null : JSON.valueToTree(value);
    }
}
