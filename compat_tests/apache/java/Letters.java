import java.nio.charset.StandardCharsets;
import java.util.concurrent.TimeUnit;
import org.apache.pulsar.client.api.Consumer;
import org.apache.pulsar.client.api.ConsumerBuilder;
import org.apache.pulsar.client.api.DeadLetterPolicy;
import org.apache.pulsar.client.api.Message;
import org.apache.pulsar.client.api.Producer;
import org.apache.pulsar.client.api.PulsarClient;
import org.apache.pulsar.client.api.Schema;
import org.apache.pulsar.client.api.SubscriptionInitialPosition;
import org.apache.pulsar.client.api.SubscriptionType;

/**
 * Sends a message to each of four topics, and handles those of the first two until they are dead
 * letters: by refusing, and by reconsuming later. The other two are left for another client.
 * Arguments: service URL and the four topics.
 */
public final class Letters {
    private Letters() {}

    public static void main(String[] arguments) throws Exception {
        try (PulsarClient client = PulsarClient.builder().serviceUrl(arguments[0]).build()) {
            for (int n = 1; n <= 4; n++) {
                send(client, arguments[n]);
            }
            refuse(client, arguments[1]);
            reconsume(client, arguments[2]);
        }
        System.out.println("done");
        System.exit(0);
    }

    private static void send(PulsarClient client, String topic) throws Exception {
        try (Producer<String> producer =
                client.newProducer(Schema.STRING).topic(topic).enableBatching(false).create()) {
            producer.newMessage()
                    .value("payload")
                    .keyBytes(new byte[] {0, (byte) 255})
                    .orderingKey("order".getBytes(StandardCharsets.UTF_8))
                    .eventTime(12345)
                    .property("own", "1")
                    .send();
        }
    }

    private static ConsumerBuilder<String> consumer(PulsarClient client, String topic) {
        return client.newConsumer(Schema.STRING)
                .topic(topic)
                .subscriptionName("s")
                .consumerName("me")
                .subscriptionType(SubscriptionType.Shared)
                .subscriptionInitialPosition(SubscriptionInitialPosition.Earliest)
                .negativeAckRedeliveryDelay(200, TimeUnit.MILLISECONDS)
                .deadLetterPolicy(DeadLetterPolicy.builder()
                        .maxRedeliverCount(1)
                        .initialSubscriptionName("kept")
                        .build());
    }

    private static void refuse(PulsarClient client, String topic) throws Exception {
        try (Consumer<String> consumer = consumer(client, topic).subscribe()) {
            while (true) {
                Message<String> message = consumer.receive(8, TimeUnit.SECONDS);
                if (message == null) {
                    return;
                }
                consumer.negativeAcknowledge(message);
            }
        }
    }

    private static void reconsume(PulsarClient client, String topic) throws Exception {
        try (Consumer<String> consumer = consumer(client, topic).enableRetry(true).subscribe()) {
            while (true) {
                Message<String> message = consumer.receive(8, TimeUnit.SECONDS);
                if (message == null) {
                    return;
                }
                consumer.reconsumeLater(message, 500, TimeUnit.MILLISECONDS);
            }
        }
    }
}
