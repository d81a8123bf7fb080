import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.BitSet;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.TimeUnit;
import org.apache.pulsar.client.api.Consumer;
import org.apache.pulsar.client.api.Message;
import org.apache.pulsar.client.api.MessageId;
import org.apache.pulsar.client.api.Producer;
import org.apache.pulsar.client.api.PulsarClient;
import org.apache.pulsar.client.api.Reader;
import org.apache.pulsar.client.api.SubscriptionInitialPosition;
import org.apache.pulsar.client.api.SubscriptionType;

/**
 * Traffic on several topics while brokers come and go: one deduplicating producer each, and
 * consumers of one type: Exclusive, Failover with cumulative acknowledgements, Shared, Key_Shared;
 * and consumers alone on as many topics, to which one message is sent at the end.
 *
 * <p>Usage: {@code Traffic SERVICE_URL TOPIC_PREFIX TOPICS}. Answers each line of its input with a
 * line of JSON: {@code more N} waits until each topic has N more receipts and tells the longest
 * time that a topic went without one since the last answer; {@code end} stops the producers, waits
 * until all is received, reads the topics, and tells what was wrong.
 */
public final class Traffic {
    static final int KEYS = 7;
    static final int PAUSE_MS = 15;
    static final int WAIT_S = 60;

    final ConcurrentLinkedQueue<String> errors = new ConcurrentLinkedQueue<>();
    private final List<Line> lines = new ArrayList<>();
    private final List<Consumer<byte[]>> alone = new ArrayList<>();
    private final PulsarClient client;
    private volatile boolean stopping;

    private Traffic(String url, String prefix, int topics) throws Exception {
        client =
                PulsarClient.builder()
                        .serviceUrl(url)
                        .operationTimeout(WAIT_S, TimeUnit.SECONDS)
                        .keepAliveInterval(2, TimeUnit.SECONDS)
                        .connectionTimeout(2, TimeUnit.SECONDS)
                        .startingBackoffInterval(50, TimeUnit.MILLISECONDS)
                        .maxBackoffInterval(500, TimeUnit.MILLISECONDS)
                        .statsInterval(0, TimeUnit.SECONDS)
                        .build();
        SubscriptionType[] types = {
            SubscriptionType.Exclusive,
            SubscriptionType.Failover,
            SubscriptionType.Shared,
            SubscriptionType.Key_Shared
        };
        for (int i = 0; i < topics; i++) {
            String topic = "persistent://public/default/" + prefix + "-" + i;
            lines.add(new Line(topic, types[i % 4]));
            alone.add(
                    client.newConsumer().topic(topic + "-alone").subscriptionName("s").subscribe());
        }
        lines.forEach(Line::start);
    }

    public static void main(String[] arguments) throws Exception {
        Traffic traffic =
                new Traffic(arguments[0], arguments[1], Integer.parseInt(arguments[2]));
        System.out.println("{\"ready\": true}");
        BufferedReader input =
                new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            String[] words = line.split(" ");
            System.out.println(
                    words[0].equals("more")
                            ? traffic.more(Integer.parseInt(words[1]))
                            : traffic.end());
            System.out.flush();
        }
        Runtime.getRuntime().halt(0);
    }

    private String more(int wanted) throws Exception {
        Map<Line, Integer> goals = new HashMap<>();
        for (Line line : lines) {
            goals.put(line, line.confirmed() + wanted);
        }
        for (Map.Entry<Line, Integer> goal : goals.entrySet()) {
            await(goal.getKey() + " gets no receipts", () ->
                    goal.getKey().confirmed() >= goal.getValue());
        }
        long gap = 0;
        for (Line line : lines) {
            gap = Math.max(gap, line.takeGap());
        }
        return answer(gap);
    }

    private String end() throws Exception {
        stopping = true;
        for (Line line : lines) {
            await(line + " has open sends", () -> line.confirmed() == line.sent);
        }
        for (Line line : lines) {
            await(line + " lost messages", line::isAllReceived);
        }
        for (Line line : lines) {
            line.read();
        }
        for (Consumer<byte[]> consumer : alone) {
            try (Producer<byte[]> producer =
                    client.newProducer().topic(consumer.getTopic()).create()) {
                producer.send(new byte[1]);
            }
            if (consumer.receive(WAIT_S, TimeUnit.SECONDS) == null) {
                errors.add(consumer.getTopic() + " is deaf");
            }
        }
        return answer(0);
    }

    private String answer(long gapMs) {
        int confirmed = 0;
        for (Line line : lines) {
            confirmed += line.confirmed();
        }
        StringBuilder found = new StringBuilder();
        for (String error : errors) {
            found.append(found.length() == 0 ? "" : ", ");
            found.append('"').append(error.replaceAll("[\"\\\\\\n]", " ")).append('"');
        }
        return "{\"gap_ms\": " + gapMs + ", \"receipts\": " + confirmed
                + ", \"errors\": [" + found + "]}";
    }

    interface Condition {
        boolean holds();
    }

    private void await(String otherwise, Condition condition) throws InterruptedException {
        long deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(WAIT_S);
        while (!condition.holds()) {
            if (System.nanoTime() > deadline) {
                errors.add(otherwise);
                return;
            }
            Thread.sleep(5);
        }
    }

    /** One topic. */
    private final class Line {
        final String topic;
        final SubscriptionType type;
        volatile int sent;
        private final Producer<byte[]> producer;
        private final List<Consumer<byte[]>> consumers = new ArrayList<>();
        private int confirmed;
        private long lastReceipt = System.nanoTime();
        private long gapNanos;
        private final BitSet received = new BitSet();
        private final Map<Integer, Integer> newest = new HashMap<>();

        Line(String topic, SubscriptionType type) throws Exception {
            this.topic = topic;
            this.type = type;
            // What it needs is not trimmed.
            client.newConsumer().topic(topic).subscriptionName("kept").subscribe().close();
            for (int i = 0; i < (type == SubscriptionType.Exclusive ? 1 : 2); i++) {
                consumers.add(
                        client.newConsumer()
                                .topic(topic)
                                .subscriptionName("s")
                                .subscriptionType(type)
                                .subscriptionInitialPosition(SubscriptionInitialPosition.Earliest)
                                .receiverQueueSize(50)
                                .acknowledgmentGroupTime(20, TimeUnit.MILLISECONDS)
                                .messageListener(this::take)
                                .subscribe());
            }
            producer =
                    client.newProducer()
                            .topic(topic)
                            .producerName("traffic")
                            .sendTimeout(0, TimeUnit.SECONDS)
                            .enableBatching(false)
                            .maxPendingMessages(100)
                            .blockIfQueueFull(true)
                            .create();
        }

        void start() {
            Thread thread = new Thread(this::produce, topic);
            thread.setDaemon(true);
            thread.start();
        }

        private void produce() {
            try {
                while (!stopping) {
                    int number = sent++;
                    producer.newMessage()
                            .key("k" + number % KEYS)
                            .value(Integer.toString(number).getBytes(StandardCharsets.UTF_8))
                            .sendAsync()
                            .whenComplete((id, error) -> confirm(number, error));
                    Thread.sleep(PAUSE_MS);
                }
            } catch (Exception error) {
                errors.add(this + " can't publish: " + error);
            }
        }

        private synchronized void confirm(int number, Throwable error) {
            if (error != null) {
                errors.add(this + " " + number + ": " + error);
            } else if (number != confirmed) {
                errors.add(this + " receipt of " + number + " after that of " + (confirmed - 1));
            }
            confirmed++;
            long now = System.nanoTime();
            gapNanos = Math.max(gapNanos, now - lastReceipt);
            lastReceipt = now;
        }

        synchronized int confirmed() {
            return confirmed;
        }

        synchronized long takeGap() {
            long gap = gapNanos / 1_000_000;
            gapNanos = 0;
            return gap;
        }

        /** A message may come again; one that comes first comes after all before it. */
        private void take(Consumer<byte[]> consumer, Message<byte[]> message) {
            int number = Integer.parseInt(new String(message.getValue(), StandardCharsets.UTF_8));
            synchronized (received) {
                received.set(number);
                if (type != SubscriptionType.Shared) {
                    boolean keyed = type == SubscriptionType.Key_Shared;
                    int step = keyed ? KEYS : 1;
                    int line = number % step;
                    int last = newest.getOrDefault(line, line - step);
                    if (number > last + step) {
                        errors.add(this + " got " + number + " after " + last);
                    }
                    newest.put(line, Math.max(last, number));
                }
            }
            if (type == SubscriptionType.Failover) {
                consumer.acknowledgeCumulativeAsync(message);
            } else {
                consumer.acknowledgeAsync(message);
            }
        }

        boolean isAllReceived() {
            synchronized (received) {
                return received.cardinality() >= confirmed();
            }
        }

        /** The log has each message once, in order. */
        void read() throws Exception {
            try (Reader<byte[]> reader =
                    client.newReader().topic(topic).startMessageId(MessageId.earliest).create()) {
                for (int expected = 0; expected < confirmed(); expected++) {
                    Message<byte[]> next = reader.readNext(WAIT_S, TimeUnit.SECONDS);
                    String found =
                            next == null
                                    ? "nothing"
                                    : new String(next.getValue(), StandardCharsets.UTF_8);
                    if (!found.equals(Integer.toString(expected))) {
                        errors.add(this + " has " + found + " instead of " + expected);
                        return;
                    }
                }
                if (reader.hasMessageAvailable()) {
                    errors.add(this + " has more than was sent");
                }
            }
        }

        @Override
        public String toString() {
            return topic + " (" + type + ")";
        }
    }
}
