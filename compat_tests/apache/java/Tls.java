import java.nio.charset.StandardCharsets;
import java.util.UUID;
import java.util.concurrent.TimeUnit;
import org.apache.pulsar.client.api.ClientBuilder;
import org.apache.pulsar.client.api.Consumer;
import org.apache.pulsar.client.api.Message;
import org.apache.pulsar.client.api.Producer;
import org.apache.pulsar.client.api.PulsarClient;
import org.apache.pulsar.client.api.SubscriptionInitialPosition;
import org.apache.pulsar.client.impl.auth.AuthenticationTls;

/**
 * Sends and receives through TLS with host names verified; prints "ok" for each URL.
 *
 * <p>Usage: {@code Tls CA CERTIFICATE KEY URL...}; without a certificate "-" and "-".
 */
public final class Tls {
    private Tls() {}

    public static void main(String[] arguments) throws Exception {
        for (int at = 3; at < arguments.length; at++) {
            exchange(arguments[at], arguments[0], arguments[1], arguments[2]);
            System.out.println("ok " + arguments[at]);
        }
    }

    private static void exchange(String url, String ca, String certificate, String key)
            throws Exception {
        ClientBuilder builder =
                PulsarClient.builder()
                        .serviceUrl(url)
                        .tlsTrustCertsFilePath(ca)
                        .enableTlsHostnameVerification(true)
                        .operationTimeout(30, TimeUnit.SECONDS)
                        .statsInterval(0, TimeUnit.SECONDS);
        if (!certificate.equals("-")) {
            builder.authentication(new AuthenticationTls(certificate, key));
        }
        String topic = "persistent://public/default/java-tls-" + UUID.randomUUID();
        try (PulsarClient client = builder.build();
                Consumer<byte[]> consumer =
                        client.newConsumer()
                                .topic(topic)
                                .subscriptionName("s")
                                .subscriptionInitialPosition(SubscriptionInitialPosition.Earliest)
                                .subscribe();
                Producer<byte[]> producer = client.newProducer().topic(topic).create()) {
            for (int size : new int[] {1, 1_000_000, 20_000}) {
                producer.send("x".repeat(size).getBytes(StandardCharsets.US_ASCII));
                Message<byte[]> message = consumer.receive(60, TimeUnit.SECONDS);
                if (message == null || message.getData().length != size) {
                    throw new IllegalStateException("not what was sent: " + message);
                }
                consumer.acknowledge(message);
            }
        }
    }
}
