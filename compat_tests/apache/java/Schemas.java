import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.time.Instant;
import java.time.LocalDate;
import java.time.LocalDateTime;
import java.time.LocalTime;
import java.util.HexFormat;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.TimeUnit;
import org.apache.pulsar.client.api.Consumer;
import org.apache.pulsar.client.api.Message;
import org.apache.pulsar.client.api.Producer;
import org.apache.pulsar.client.api.PulsarClient;
import org.apache.pulsar.client.api.Schema;
import org.apache.pulsar.client.api.SubscriptionInitialPosition;
import org.apache.pulsar.client.api.schema.GenericRecord;
import org.apache.pulsar.client.api.schema.SchemaDefinition;
import org.apache.pulsar.common.schema.KeyValue;
import org.apache.pulsar.common.schema.KeyValueEncodingType;

/**
 * Every schema type of the Java client with one value each.
 *
 * <p>{@code golden} prints how each describes itself and encodes its value. {@code cross url prefix}
 * reads what another client wrote to {@code prefix-sdk-kind}, and writes to
 * {@code prefix-java-kind}; a line of JSON tells for each kind whether the value was the same.
 */
public final class Schemas {
    public enum Color { RED, GREEN }

    public static class Item {
        public String sku;
        public int count;
        public double price;
    }

    public static class Order {
        public long id;
        public String customer;
        public Color color;
        public List<Item> items;
        public Map<String, Long> tags;
        public Item first;
        public boolean paid;
        public float weight;
        public Integer rank;

        Order ranked() {
            rank = 1;
            return this;
        }
    }

    public static class Times {
        public LocalDate day;
        public Instant at;
        public LocalTime noon;
    }

    record Sample(String kind, Schema<?> schema, Object value) { }

    private static final ObjectMapper JSON = new ObjectMapper().findAndRegisterModules();
    private static final Instant AT = Instant.ofEpochSecond(1_700_000_000L, 123_456_000);

    static Item item() {
        Item item = new Item();
        item.sku = "a-1";
        item.count = 3;
        item.price = 2.5;
        return item;
    }

    static Order order() {
        Order order = new Order();
        order.id = 7_000_000_000L;
        order.customer = "Zoë";
        order.color = Color.GREEN;
        order.items = List.of(item());
        order.tags = Map.of("x", 5L);
        order.first = item();
        order.paid = true;
        order.weight = 1.5f;
        return order;
    }

    static Times times() {
        Times times = new Times();
        times.day = LocalDate.of(2024, 2, 29);
        times.at = AT.truncatedTo(java.time.temporal.ChronoUnit.MILLIS);
        times.noon = LocalTime.of(12, 0, 1);
        return times;
    }

    static List<Sample> samples() {
        SchemaDefinition<Order> strict =
            SchemaDefinition.<Order>builder().withPojo(Order.class).withAlwaysAllowNull(false).build();
        Schema<Order> avro = Schema.AVRO(Order.class);
        com.google.protobuf.Timestamp stamp =
            com.google.protobuf.Timestamp.newBuilder().setSeconds(5).setNanos(7).build();
        com.google.protobuf.Api api = com.google.protobuf.Api.newBuilder().setName("n").build();
        KeyValue<String, Order> pair = new KeyValue<>("key", order());
        return List.of(
            new Sample("bytes", Schema.BYTES, new byte[] {1, 2}),
            new Sample("string", Schema.STRING, "Zoë"),
            new Sample("bool", Schema.BOOL, true),
            new Sample("int8", Schema.INT8, (byte) -5),
            new Sample("int16", Schema.INT16, (short) -500),
            new Sample("int32", Schema.INT32, -70000),
            new Sample("int64", Schema.INT64, -7_000_000_000L),
            new Sample("float", Schema.FLOAT, 1.5f),
            new Sample("double", Schema.DOUBLE, -2.25),
            new Sample("date", Schema.DATE, new java.util.Date(1_700_000_000_123L)),
            new Sample("time", Schema.TIME, new java.sql.Time(43_201_000L)),
            new Sample("timestamp", Schema.TIMESTAMP, new java.sql.Timestamp(1_700_000_000_123L)),
            new Sample("instant", Schema.INSTANT, AT),
            new Sample("local_date", Schema.LOCAL_DATE, LocalDate.of(2024, 2, 29)),
            new Sample("local_time", Schema.LOCAL_TIME, LocalTime.of(12, 0, 1, 5000)),
            new Sample("local_date_time", Schema.LOCAL_DATE_TIME,
                LocalDateTime.of(2024, 2, 29, 12, 0, 1, 5000)),
            new Sample("json", Schema.JSON(Order.class), order()),
            new Sample("avro", avro, order()),
            new Sample("avro_strict", Schema.AVRO(strict), order().ranked()),
            new Sample("avro_times", Schema.AVRO(SchemaDefinition.<Times>builder()
                .withPojo(Times.class).withJSR310ConversionEnabled(true).build()), times()),
            new Sample("protobuf", Schema.PROTOBUF(com.google.protobuf.Timestamp.class), stamp),
            new Sample("protobuf_api", Schema.PROTOBUF(com.google.protobuf.Api.class), api),
            new Sample("protobuf_native",
                Schema.PROTOBUF_NATIVE(com.google.protobuf.Timestamp.class), stamp),
            new Sample("protobuf_native_api",
                Schema.PROTOBUF_NATIVE(com.google.protobuf.Api.class), api),
            new Sample("key_value_inline",
                Schema.KeyValue(Schema.STRING, avro, KeyValueEncodingType.INLINE), pair),
            new Sample("key_value_separated",
                Schema.KeyValue(Schema.STRING, avro, KeyValueEncodingType.SEPARATED), pair),
            new Sample("key_value_primitive",
                Schema.KeyValue(Schema.INT32, Schema.STRING, KeyValueEncodingType.INLINE),
                new KeyValue<>(1, "one")));
    }

    @SuppressWarnings("unchecked")
    static byte[] encoded(Sample sample) {
        return ((Schema<Object>) sample.schema()).encode(sample.value());
    }

    static String hex(byte[] data) {
        return HexFormat.of().formatHex(data);
    }

    static void golden() throws Exception {
        for (Sample sample : samples()) {
            var info = sample.schema().getSchemaInfo();
            Map<String, Object> told = new LinkedHashMap<>();
            told.put("kind", sample.kind());
            told.put("name", info.getName());
            told.put("type", info.getType().getValue());
            told.put("schema", hex(info.getSchema()));
            told.put("properties", new TreeMap<>(info.getProperties()));
            told.put("payload", hex(encoded(sample)));
            System.out.println(JSON.writeValueAsString(told));
        }
    }

    static String canonical(Object value) throws Exception {
        if (value instanceof byte[] data) {
            return hex(data);
        }
        if (value instanceof KeyValue<?, ?> pair) {
            return canonical(pair.getKey()) + "=" + canonical(pair.getValue());
        }
        if (value instanceof com.google.protobuf.Message message) {
            return message.toString();
        }
        return value.getClass().getSimpleName() + JSON.writeValueAsString(value);
    }

    @SuppressWarnings("unchecked")
    static void cross(PulsarClient client, String prefix) throws Exception {
        for (Sample sample : samples()) {
            ObjectNode told = JSON.createObjectNode().put("kind", sample.kind());
            Schema<Object> schema = (Schema<Object>) sample.schema();
            try {
                String theirs = prefix + "-sdk-" + sample.kind();
                try (Consumer<Object> consumer = client.newConsumer(schema).topic(theirs)
                        .subscriptionName("java")
                        .subscriptionInitialPosition(SubscriptionInitialPosition.Earliest)
                        .subscribe()) {
                    Message<Object> message = consumer.receive(60, TimeUnit.SECONDS);
                    told.put("expected", canonical(sample.value()));
                    told.put("found", message == null ? "nothing" : canonical(message.getValue()));
                }
                if (!sample.kind().startsWith("protobuf")) {
                    try (Consumer<GenericRecord> consumer =
                            client.newConsumer(Schema.AUTO_CONSUME()).topic(theirs)
                            .subscriptionName("java-auto")
                            .subscriptionInitialPosition(SubscriptionInitialPosition.Earliest)
                            .subscribe()) {
                        Message<GenericRecord> message = consumer.receive(60, TimeUnit.SECONDS);
                        told.put("auto", String.valueOf(message.getValue().getSchemaType()));
                    }
                }
                String ours = prefix + "-java-" + sample.kind();
                try (Producer<Object> producer = client.newProducer(schema).topic(ours).create()) {
                    producer.newMessage().value(sample.value()).send();
                }
            } catch (Exception error) {
                told.put("error", error.toString());
            }
            System.out.println(told);
        }
    }

    public static void main(String[] arguments) throws Exception {
        if (arguments[0].equals("golden")) {
            golden();
            return;
        }
        try (PulsarClient client = PulsarClient.builder().serviceUrl(arguments[1]).build()) {
            cross(client, arguments[2]);
        }
    }
}
