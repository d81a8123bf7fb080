import java.util.HexFormat;
import java.util.concurrent.TimeUnit;
import org.apache.pulsar.client.api.Consumer;
import org.apache.pulsar.client.api.Message;
import org.apache.pulsar.client.api.Producer;
import org.apache.pulsar.client.api.PulsarClient;
import org.apache.pulsar.client.api.SubscriptionInitialPosition;

/**
 * Sends a message with each of some keys of bytes to one topic, and tells what came with which key
 * by another. Arguments: service URL, the topic to read, the topic to write, keys in hex.
 */
public final class Keys {
    private Keys() {}

    public static void main(String[] arguments) throws Exception {
        int count = arguments.length - 3;
        HexFormat hex = HexFormat.of();
        try (PulsarClient client = PulsarClient.builder().serviceUrl(arguments[0]).build()) {
            try (Producer<byte[]> producer = client.newProducer().topic(arguments[2]).create()) {
                for (int n = 3; n < arguments.length; n++) {
                    byte[] key = hex.parseHex(arguments[n]);
                    producer.newMessage().keyBytes(key).value(key).send();
                }
            }
            try (Consumer<byte[]> consumer = client.newConsumer()
                    .topic(arguments[1])
                    .subscriptionName("java")
                    .subscriptionInitialPosition(SubscriptionInitialPosition.Earliest)
                    .subscribe()) {
                for (int n = 0; n < count; n++) {
                    Message<byte[]> message = consumer.receive(60, TimeUnit.SECONDS);
                    String topic = message.getTopicName();
                    System.out.println(String.join(" ", "got",
                            topic.substring(topic.lastIndexOf('-') + 1),
                            hex.formatHex(message.getKeyBytes()),
                            Boolean.toString(message.hasBase64EncodedKey())));
                }
            }
        }
        System.out.println("done");
        System.exit(0);
    }
}
