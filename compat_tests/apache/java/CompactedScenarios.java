import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.TimeUnit;
import org.apache.pulsar.client.api.Consumer;
import org.apache.pulsar.client.api.Message;
import org.apache.pulsar.client.api.MessageId;
import org.apache.pulsar.client.api.Producer;
import org.apache.pulsar.client.api.PulsarClientException;
import org.apache.pulsar.client.api.Reader;
import org.apache.pulsar.client.api.Schema;
import org.apache.pulsar.client.api.SubscriptionType;
import org.apache.pulsar.client.api.TableView;

/** Compacted topics: readers, subscriptions, views. */
final class CompactedScenarios {
    private final Exerciser on;

    CompactedScenarios(Exerciser on) {
        this.on = on;
    }

    void register() {
        on.add("compacted_single", () -> compacted(1));
        on.add("compacted_batches", () -> compacted(3));
        on.add("compacted_subscription", this::subscription);
        on.add("compacted_view", this::view);
        on.add("compacted_refused", this::refused);
    }

    private static void publish(Producer<byte[]> producer, String... pairs) throws Exception {
        for (String pair : pairs) {
            String[] parts = pair.split("=", 2);
            // Without value the message says that it is null.
            producer.newMessage()
                    .key(parts[0])
                    .value(parts.length < 2 ? null : Exerciser.bytes(parts[1]))
                    .sendAsync();
        }
        producer.flush();
    }

    private void compact(String topic) throws Exception {
        String path = topic.replace("://", "/") + "/compaction";
        on.admin("PUT", path, "");
        long deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(Exerciser.WAIT_S);
        String status = on.admin("GET", path, "");
        while (status.contains("RUNNING") && System.nanoTime() < deadline) {
            Thread.sleep(20);
            status = on.admin("GET", path, "");
        }
        Exerciser.check(status.contains("SUCCESS"), "compaction ended with " + status);
    }

    private static String pair(Message<byte[]> message) {
        String key = message.getKey();
        return message.getData() == null ? key : key + "=" + Exerciser.text(message);
    }

    private List<String> read(String topic, MessageId start) throws Exception {
        List<String> found = new ArrayList<>();
        try (Reader<byte[]> reader =
                on.client.newReader()
                        .topic(topic)
                        .startMessageId(start)
                        .readCompacted(true)
                        .create()) {
            while (reader.hasMessageAvailable()) {
                found.add(pair(reader.readNext(Exerciser.WAIT_S, TimeUnit.SECONDS)));
            }
        }
        return found;
    }

    private void compacted(int perBatch) throws Exception {
        String topic = on.topic("compacted");
        try (Producer<byte[]> producer =
                (perBatch > 1 ? on.batching(topic, perBatch) : on.producer(topic)).create()) {
            publish(producer, "a=1", "b=2", "a=3", "c=4", "b=5", "c", "d=6", "d", "d");
            compact(topic);
            Exerciser.same(List.of("a=3", "b=5"), read(topic, MessageId.earliest));
            publish(producer, "e=7", "a=8", "b");
            Exerciser.same(
                    List.of("a=3", "b=5", "e=7", "a=8", "b"),
                    read(topic, MessageId.earliest));
            compact(topic);
            Exerciser.same(List.of("e=7", "a=8"), read(topic, MessageId.earliest));
            Exerciser.same(List.of(), read(topic, MessageId.latest));
        }
    }

    private void subscription() throws Exception {
        String topic = on.topic("compacted-sub");
        try (Producer<byte[]> producer = on.producer(topic).create()) {
            publish(producer, "a=1", "b=2", "a=3", "c=4");
            compact(topic);
            publish(producer, "b=5");
            List<String> left = List.of("b=2", "a=3", "c=4", "b=5");
            try (Consumer<byte[]> consumer =
                    on.consumer(topic, SubscriptionType.Failover).readCompacted(true).subscribe()) {
                List<Message<byte[]>> got = Exerciser.next(consumer, 4);
                Exerciser.same(left, got.stream().map(CompactedScenarios::pair).toList());
                consumer.acknowledgeCumulative(got.get(1));
                consumer.seek(MessageId.earliest);
                got = Exerciser.next(consumer, 4);
                Exerciser.same(left, got.stream().map(CompactedScenarios::pair).toList());
                consumer.acknowledgeCumulative(got.get(2));
            }
            try (Consumer<byte[]> consumer =
                    on.consumer(topic, SubscriptionType.Failover).readCompacted(true).subscribe()) {
                Exerciser.same("b=5", pair(Exerciser.next(consumer)));
                Exerciser.nothingMore(consumer);
            }
        }
    }

    private void view() throws Exception {
        String topic = on.topic("compacted-view");
        try (Producer<byte[]> producer = on.batching(topic, 4).create()) {
            publish(producer, "a=1", "b=2", "a=3", "b");
            compact(topic);
            publish(producer, "c=4", "d=5", "d=6", "a=7");
            try (TableView<byte[]> view = on.client.newTableView(Schema.BYTES).topic(topic).create()) {
                Map<String, String> found = new TreeMap<>();
                view.forEach((key, value) -> found.put(key, new String(value)));
                Exerciser.same(Map.of("a", "7", "c", "4", "d", "6"), found);
            }
        }
    }

    private void refused() throws Exception {
        Exerciser.refused(
                PulsarClientException.class,
                () ->
                        on.consumer(on.topic("compacted-refused"), SubscriptionType.Shared)
                                .readCompacted(true)
                                .subscribe());
    }
}
