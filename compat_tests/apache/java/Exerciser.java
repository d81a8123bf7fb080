import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeSet;
import java.util.UUID;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import java.util.stream.Collectors;
import java.util.stream.IntStream;
import org.apache.pulsar.client.api.ClientBuilder;
import org.apache.pulsar.client.api.Consumer;
import org.apache.pulsar.client.api.ConsumerBuilder;
import org.apache.pulsar.client.api.Message;
import org.apache.pulsar.client.api.Producer;
import org.apache.pulsar.client.api.ProducerBuilder;
import org.apache.pulsar.client.api.PulsarClient;
import org.apache.pulsar.client.api.SubscriptionInitialPosition;
import org.apache.pulsar.client.api.SubscriptionType;

/**
 * Runs the scenarios of {@link Scenarios} against a server and prints one JSON line for each:
 * name, ok, seconds, error.
 *
 * <p>Usage: {@code Exerciser SERVICE_URL WEB_URL [scenario...]}
 */
public final class Exerciser {
    /** One scenario; it fails by throwing. */
    interface Scenario {
        void run() throws Exception;
    }

    static final int WAIT_S = 60;
    final PulsarClient client;
    private final String webUrl;
    private final Map<String, Scenario> scenarios = new LinkedHashMap<>();

    private Exerciser(String serviceUrl, String webUrl) throws Exception {
        this.webUrl = webUrl;
        ClientBuilder builder =
                PulsarClient.builder()
                        .serviceUrl(serviceUrl)
                        .operationTimeout(30, TimeUnit.SECONDS)
                        .statsInterval(0, TimeUnit.SECONDS);
        // Through which of the broker's advertised listeners; the recording relay is one.
        String listener = System.getProperty("listener");
        this.client = (listener == null ? builder : builder.listenerName(listener)).build();
    }

    public static void main(String[] arguments) throws Exception {
        Exerciser exerciser = new Exerciser(arguments[0], arguments[1]);
        new Scenarios(exerciser).register();
        new MoreScenarios(exerciser).register();
        new CompactedScenarios(exerciser).register();
        Set<String> wanted = new HashSet<>(List.of(arguments).subList(2, arguments.length));
        exerciser.scenarios.forEach(
                (name, scenario) -> {
                    if (wanted.isEmpty() || wanted.contains(name)) {
                        report(name, scenario);
                    }
                });
        Runtime.getRuntime().halt(0);
    }

    void add(String name, Scenario scenario) {
        scenarios.put(name, scenario);
    }

    private static void report(String name, Scenario scenario) {
        long began = System.nanoTime();
        String error = "";
        try {
            scenario.run();
        } catch (Throwable failure) {
            StackTraceElement at = failure.getStackTrace().length > 0 ? failure.getStackTrace()[0] : null;
            for (StackTraceElement element : failure.getStackTrace()) {
                if (element.getFileName() != null && element.getFileName().endsWith("Scenarios.java")) {
                    at = element;
                    break;
                }
            }
            error = failure + " at " + at;
        }
        System.out.printf(
                java.util.Locale.ROOT,
                "{\"name\": \"%s\", \"ok\": %s, \"seconds\": %.3f, \"error\": \"%s\"}%n",
                name,
                error.isEmpty(),
                (System.nanoTime() - began) / 1e9,
                error.replaceAll("[^ -!#-\\[\\]-~]", " "));
        System.out.flush();
    }

    // -- helpers of the scenarios ----------------------------------------------------------

    String topic(String name) {
        return "persistent://public/default/java-" + name + "-" + UUID.randomUUID().toString().substring(0, 8);
    }

    ProducerBuilder<byte[]> producer(String topic) {
        return client.newProducer().topic(topic).enableBatching(false);
    }

    ProducerBuilder<byte[]> batching(String topic, int messages) {
        return client.newProducer()
                .topic(topic)
                .enableBatching(true)
                .batchingMaxMessages(messages)
                .batchingMaxPublishDelay(1, TimeUnit.MINUTES);
    }

    ConsumerBuilder<byte[]> consumer(String topic, SubscriptionType type) {
        return client.newConsumer()
                .topic(topic)
                .subscriptionName("sub")
                .subscriptionType(type)
                .subscriptionInitialPosition(SubscriptionInitialPosition.Earliest);
    }

    /** Send "prefix0" to "prefixN-1" without waiting for each, then wait for all. */
    static void send(Producer<byte[]> producer, String prefix, int count) throws Exception {
        List<CompletableFuture<?>> sends = new ArrayList<>();
        for (int i = 0; i < count; i++) {
            sends.add(producer.sendAsync(bytes(prefix + i)));
        }
        producer.flush();
        for (CompletableFuture<?> send : sends) {
            send.get(WAIT_S, TimeUnit.SECONDS);
        }
    }

    static byte[] bytes(String text) {
        return text.getBytes(StandardCharsets.UTF_8);
    }

    static String text(Message<byte[]> message) {
        return new String(message.getData(), StandardCharsets.UTF_8);
    }

    static Message<byte[]> next(Consumer<byte[]> consumer) throws Exception {
        Message<byte[]> message = consumer.receive(WAIT_S, TimeUnit.SECONDS);
        check(message != null, "no message came");
        return message;
    }

    static List<Message<byte[]>> next(Consumer<byte[]> consumer, int count) throws Exception {
        List<Message<byte[]>> messages = new ArrayList<>();
        for (int i = 0; i < count; i++) {
            Message<byte[]> message = consumer.receive(WAIT_S, TimeUnit.SECONDS);
            check(message != null, "only " + i + " of " + count + " messages came");
            messages.add(message);
        }
        return messages;
    }

    static List<String> texts(List<Message<byte[]>> messages) {
        return messages.stream().map(Exerciser::text).collect(Collectors.toList());
    }

    static List<String> numbered(String prefix, int from, int to) {
        return IntStream.range(from, to).mapToObj(i -> prefix + i).collect(Collectors.toList());
    }

    static void nothingMore(Consumer<byte[]> consumer) throws Exception {
        Message<byte[]> message = consumer.receive(300, TimeUnit.MILLISECONDS);
        check(message == null, "an unexpected message came: " + (message == null ? "" : text(message)));
    }

    /** Drain consumers by turns until count messages came or nothing comes for a while. */
    static Map<Consumer<byte[]>, List<Message<byte[]>>> drain(List<Consumer<byte[]>> consumers, int count)
            throws Exception {
        Map<Consumer<byte[]>, List<Message<byte[]>>> got = new LinkedHashMap<>();
        consumers.forEach(consumer -> got.put(consumer, new ArrayList<>()));
        long deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(WAIT_S);
        int total = 0;
        while (total < count && System.nanoTime() < deadline) {
            for (Consumer<byte[]> consumer : consumers) {
                Message<byte[]> message = consumer.receive(20, TimeUnit.MILLISECONDS);
                if (message != null) {
                    got.get(consumer).add(message);
                    total++;
                }
            }
        }
        same(count, total);
        return got;
    }

    static void same(Object expected, Object actual) {
        check(expected.equals(actual), "expected " + shorten(expected) + " but was " + shorten(actual));
    }

    static void sameSet(List<String> expected, List<String> actual) {
        same(expected.size(), actual.size());
        same(new TreeSet<>(expected), new TreeSet<>(actual));
    }

    static void check(boolean condition, String otherwise) {
        if (!condition) {
            throw new AssertionError(otherwise);
        }
    }

    static void refused(Class<? extends Throwable> kind, Scenario action) throws Exception {
        try {
            action.run();
        } catch (Throwable failure) {
            Throwable cause = failure;
            while (cause != null && !kind.isInstance(cause)) {
                cause = cause.getCause();
            }
            check(cause != null, "expected " + kind.getSimpleName() + " but was " + failure);
            return;
        }
        check(false, "expected " + kind.getSimpleName() + " but it was allowed");
    }

    /** A request to the admin REST API; the body as JSON, "" for none. */
    String admin(String method, String path, String body) throws Exception {
        HttpRequest request =
                HttpRequest.newBuilder(URI.create(webUrl + "/admin/v2/" + path))
                        .method(method, HttpRequest.BodyPublishers.ofString(body))
                        .header("Content-Type", "application/json")
                        .build();
        HttpResponse<String> answer =
                HttpClient.newHttpClient().send(request, HttpResponse.BodyHandlers.ofString());
        check(answer.statusCode() / 100 == 2, method + " " + path + ": " + answer.statusCode() + " " + answer.body());
        return answer.body();
    }

    String partitioned(String name, int partitions) throws Exception {
        String topic = topic(name);
        admin("PUT", topic.replace("://", "/") + "/partitions", Integer.toString(partitions));
        return topic;
    }

    private static String shorten(Object value) {
        String text = String.valueOf(value);
        return text.length() > 300 ? text.substring(0, 300) + "..." : text;
    }
}
