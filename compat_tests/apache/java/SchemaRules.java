import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import com.google.protobuf.StringValue;
import com.google.protobuf.Int32Value;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.Objects;
import java.util.Set;
import java.util.UUID;
import java.util.concurrent.Callable;
import java.util.concurrent.TimeUnit;
import org.apache.pulsar.client.admin.PulsarAdmin;
import org.apache.pulsar.client.api.Consumer;
import org.apache.pulsar.client.api.Message;
import org.apache.pulsar.client.api.Producer;
import org.apache.pulsar.client.api.PulsarClient;
import org.apache.pulsar.client.api.PulsarClientException;
import org.apache.pulsar.client.api.Schema;
import org.apache.pulsar.client.api.SubscriptionInitialPosition;
import org.apache.pulsar.client.api.schema.GenericRecord;
import org.apache.pulsar.client.api.schema.SchemaDefinition;
import org.apache.pulsar.common.policies.data.SchemaCompatibilityStrategy;
import org.apache.pulsar.common.policies.data.TenantInfo;
import org.apache.pulsar.common.schema.KeyValue;
import org.apache.pulsar.common.schema.KeyValueEncodingType;
import org.apache.pulsar.common.schema.SchemaType;

/** What the Java client meets where a broker checks schemas; a line of JSON for each scenario. */
public final class SchemaRules {
    public static class First {
        public int id;
        public String name;

        static First of(int id) {
            First made = new First();
            made.id = id;
            made.name = "n" + id;
            return made;
        }
    }

    public static class Second {
        public int id;
        public String name;
        public Double price;
    }

    public static class Other {
        public int id;
        public long name;
    }

    private final PulsarClient client;
    private final PulsarAdmin admin;
    private final String tenant = "schemas" + UUID.randomUUID().toString().substring(0, 8);

    /** In a tenant of its own: others tell what namespaces `public` has. */
    private SchemaRules(PulsarClient client, PulsarAdmin admin) throws Exception {
        this.client = client;
        this.admin = admin;
        TenantInfo info = TenantInfo.builder().allowedClusters(Set.of("standalone")).build();
        admin.tenants().createTenant(tenant, info);
    }

    public static void main(String[] arguments) throws Exception {
        try (PulsarClient client = PulsarClient.builder().serviceUrl(arguments[0]).build();
                PulsarAdmin admin = PulsarAdmin.builder().serviceHttpUrl(arguments[1]).build()) {
            SchemaRules rules = new SchemaRules(client, admin);
            Map<String, Callable<String>> on = new LinkedHashMap<>();
            on.put("avro_evolves", () -> rules.evolves("AVRO"));
            on.put("json_evolves", () -> rules.evolves("JSON"));
            on.put("refused", rules::refused);
            on.put("auto_update_off", rules::autoUpdateOff);
            on.put("auto_produce", rules::autoProduce);
            on.put("key_value", rules::keyValue);
            on.put("native", rules::nativeMessages);
            on.put("deleted", rules::deleted);
            for (Map.Entry<String, Callable<String>> each : on.entrySet()) {
                ObjectNode line = new ObjectMapper().createObjectNode().put("name", each.getKey());
                try {
                    line.put("told", each.getValue().call());
                } catch (Throwable error) {
                    line.put("error", String.valueOf(error));
                }
                System.out.println(line);
            }
        }
        System.exit(0);
    }

    private String topic() throws Exception {
        String namespace = tenant + "/s" + UUID.randomUUID().toString().substring(0, 8);
        admin.namespaces().createNamespace(namespace);
        return "persistent://" + namespace + "/t";
    }

    private static String namespace(String topic) {
        return topic.substring("persistent://".length(), topic.lastIndexOf('/'));
    }

    private static <T> Schema<T> made(String kind, Class<T> type) {
        SchemaDefinition<T> as = SchemaDefinition.<T>builder().withPojo(type).build();
        return kind.equals("AVRO") ? Schema.AVRO(as) : Schema.JSON(as);
    }

    private <T> String produced(String topic, Schema<T> schema, T value) throws Exception {
        try (Producer<T> producer = client.newProducer(schema).topic(topic).create()) {
            Message<?> unused = null;
            return Objects.toString(value == null ? unused : producer.send(value)).isEmpty() ? "" : "ok";
        } catch (PulsarClientException error) {
            return error.getClass().getSimpleName();
        }
    }

    private <T> Consumer<T> consumer(String topic, Schema<T> schema) throws Exception {
        return client.newConsumer(schema).topic(topic).subscriptionName(UUID.randomUUID().toString())
                .subscriptionInitialPosition(SubscriptionInitialPosition.Earliest).subscribe();
    }

    private String evolves(String kind) throws Exception {
        String topic = topic();
        Second more = new Second();
        more.id = 2;
        more.name = "n2";
        more.price = 2.5;
        String sent = produced(topic, made(kind, First.class), First.of(1))
                + produced(topic, made(kind, Second.class), more)
                + produced(topic, made(kind, First.class), First.of(3));
        StringBuilder read = new StringBuilder();
        try (Consumer<Second> typed = consumer(topic, made(kind, Second.class));
                Consumer<GenericRecord> any = consumer(topic, Schema.AUTO_CONSUME())) {
            for (int index = 0; index < 3; index++) {
                Second value = typed.receive(60, TimeUnit.SECONDS).getValue();
                Message<GenericRecord> record = any.receive(60, TimeUnit.SECONDS);
                read.append(' ').append(value.id).append(value.name).append(value.price).append('/')
                        .append(record.getValue().getField("id")).append('/')
                        .append(record.getSchemaVersion()[7]);
            }
        }
        return sent + read + " " + admin.schemas().getAllSchemas(topic).size();
    }

    private String refused() throws Exception {
        String topic = topic();
        String told = produced(topic, Schema.AVRO(First.class), First.of(1));
        Other other = new Other();
        told += " " + produced(topic, Schema.AVRO(Other.class), other);
        told += " " + produced(topic, Schema.STRING, "x");
        try (Consumer<String> unused = consumer(topic, Schema.STRING)) {
            told += " let in";
        } catch (PulsarClientException error) {
            told += " " + error.getClass().getSimpleName();
        }
        admin.namespaces().setSchemaValidationEnforced(namespace(topic), true);
        Thread.sleep(1500);
        told += " " + produced(topic, Schema.BYTES, new byte[1]);
        admin.namespaces().setSchemaCompatibilityStrategy(
                namespace(topic), SchemaCompatibilityStrategy.ALWAYS_COMPATIBLE);
        Thread.sleep(1500);
        return told + " " + produced(topic, Schema.AVRO(Other.class), other);
    }

    private String autoUpdateOff() throws Exception {
        String topic = topic();
        String told = produced(topic, Schema.AVRO(First.class), First.of(1));
        admin.namespaces().setIsAllowAutoUpdateSchema(namespace(topic), false);
        Thread.sleep(1500);
        told += " " + produced(topic, Schema.AVRO(Second.class), new Second());
        admin.schemas().createSchema(topic, Schema.AVRO(Second.class).getSchemaInfo());
        told += " " + produced(topic, Schema.AVRO(Second.class), new Second());
        return told + " " + produced(topic, Schema.AVRO(First.class), First.of(2));
    }

    private String autoProduce() throws Exception {
        String topic = topic();
        Schema<First> schema = Schema.AVRO(First.class);
        produced(topic, schema, First.of(1));
        String told = produced(topic, Schema.AUTO_PRODUCE_BYTES(), schema.encode(First.of(2)));
        try (Consumer<First> typed = consumer(topic, schema)) {
            typed.receive(60, TimeUnit.SECONDS);
            told += typed.receive(60, TimeUnit.SECONDS).getValue().id;
        }
        try (Producer<byte[]> auto =
                client.newProducer(Schema.AUTO_PRODUCE_BYTES()).topic(topic).create()) {
            auto.send(new byte[] {1});
            return told + " sent nonsense";
        } catch (Exception error) {
            return told + " refused";
        }
    }

    private String keyValue() throws Exception {
        String told = "";
        for (KeyValueEncodingType encoding : KeyValueEncodingType.values()) {
            String topic = topic();
            Schema<KeyValue<String, First>> one =
                    Schema.KeyValue(Schema.STRING, Schema.JSON(First.class), encoding);
            told += produced(topic, one, new KeyValue<>("k", First.of(1)));
            Schema<KeyValue<String, Second>> more =
                    Schema.KeyValue(Schema.STRING, Schema.JSON(Second.class), encoding);
            told += " " + produced(topic, more, new KeyValue<>("k", new Second()));
            Schema<KeyValue<Integer, Other>> other =
                    Schema.KeyValue(Schema.INT32, Schema.JSON(Other.class), encoding);
            told += " " + produced(topic, other, new KeyValue<>(1, new Other()));
            try (Consumer<KeyValue<String, First>> typed = consumer(topic, one)) {
                KeyValue<String, First> read = typed.receive(60, TimeUnit.SECONDS).getValue();
                told += " " + read.getKey() + read.getValue().name + " ";
            }
            told += admin.schemas().getSchemaInfo(topic).getType() + " ";
        }
        return told;
    }

    private String nativeMessages() throws Exception {
        String topic = topic();
        StringValue text = StringValue.of("x");
        String told = produced(topic, Schema.PROTOBUF_NATIVE(StringValue.class), text);
        told += " " + produced(
                topic, Schema.PROTOBUF_NATIVE(Int32Value.class), Int32Value.of(1));
        try (Consumer<GenericRecord> any = consumer(topic, Schema.AUTO_CONSUME())) {
            Message<GenericRecord> read = any.receive(60, TimeUnit.SECONDS);
            told += " " + read.getValue().getSchemaType() + read.getValue().getField("value");
        }
        return told;
    }

    private String deleted() throws Exception {
        String topic = topic();
        produced(topic, Schema.AVRO(First.class), First.of(1));
        admin.schemas().deleteSchema(topic);
        String told = produced(topic, Schema.STRING, "x");
        told += " " + admin.schemas().getSchemaInfoWithVersion(topic).getVersion();
        told += " " + admin.schemas().getVersionBySchema(topic, Schema.STRING.getSchemaInfo());
        admin.schemas().deleteSchema(topic, true);
        try {
            return told + admin.schemas().getSchemaInfo(topic);
        } catch (org.apache.pulsar.client.admin.PulsarAdminException.NotFoundException error) {
            return told + " gone " + SchemaType.NONE;
        }
    }
}
