import java.nio.charset.StandardCharsets;
import java.util.UUID;
import java.util.concurrent.TimeUnit;
import org.apache.pulsar.client.api.Authentication;
import org.apache.pulsar.client.api.Consumer;
import org.apache.pulsar.client.api.Message;
import org.apache.pulsar.client.api.Producer;
import org.apache.pulsar.client.api.PulsarClient;
import org.apache.pulsar.client.api.PulsarClientException;
import org.apache.pulsar.client.api.SubscriptionInitialPosition;
import org.apache.pulsar.client.impl.auth.AuthenticationBasic;
import org.apache.pulsar.client.impl.auth.AuthenticationTls;
import org.apache.pulsar.client.impl.auth.AuthenticationToken;

/**
 * Sends and receives as somebody; prints what came of it for each: "ok" or the exception's name.
 *
 * <p>Usage: {@code Proxied CA (URL METHOD FIRST SECOND)...}; the words are a token and "-", a
 * certificate and its key, or a user and the password.
 */
public final class Proxied {
    private Proxied() {}

    public static void main(String[] arguments) throws Exception {
        for (int at = 1; at + 3 < arguments.length; at += 4) {
            Authentication who = who(arguments[at + 1], arguments[at + 2], arguments[at + 3]);
            try {
                exchange(arguments[at], arguments[0], who);
                System.out.println("ok");
            } catch (PulsarClientException error) {
                System.out.println(error.getClass().getSimpleName());
            }
        }
    }

    private static Authentication who(String method, String first, String second) {
        switch (method) {
            case "token":
                return new AuthenticationToken(first);
            case "tls":
                return new AuthenticationTls(first, second);
            default:
                AuthenticationBasic basic = new AuthenticationBasic();
                basic.configure(
                        "{\"userId\":\"" + first + "\",\"password\":\"" + second + "\"}");
                return basic;
        }
    }

    private static void exchange(String url, String ca, Authentication who)
            throws PulsarClientException {
        String topic = "persistent://public/default/java-proxied-" + UUID.randomUUID();
        try (PulsarClient client =
                        PulsarClient.builder()
                                .serviceUrl(url)
                                .tlsTrustCertsFilePath(ca)
                                .enableTlsHostnameVerification(true)
                                .authentication(who)
                                .operationTimeout(30, TimeUnit.SECONDS)
                                .statsInterval(0, TimeUnit.SECONDS)
                                .build();
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
                    throw new PulsarClientException("not what was sent: " + message);
                }
                consumer.acknowledge(message);
            }
        }
    }
}
