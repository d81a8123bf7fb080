import java.util.Arrays;
import org.apache.pulsar.PulsarStandaloneStarter;
import org.apache.pulsar.client.admin.PulsarAdmin;
import org.apache.pulsar.client.admin.PulsarAdminException;

/**
 * Loads what servers and clients load, in one JVM, which archives it when it ends.
 *
 * <p>Usage: {@code Archive SERVICE_URL WEB_URL ARGUMENT_OF_STANDALONE...}
 */
public final class Archive {
    private static final int TRIES = 1000;
    private static final long PAUSE_MS = 200;

    private Archive() {}

    public static void main(String[] arguments) throws Exception {
        String[] ofServer = Arrays.copyOfRange(arguments, 2, arguments.length);
        Thread server = new Thread(() -> serve(ofServer));
        server.setDaemon(true);
        server.start();
        waitHealthy(arguments[1]);
        Exerciser.main(new String[] {arguments[0], arguments[1]});
    }

    private static void serve(String[] arguments) {
        try {
            PulsarStandaloneStarter.main(arguments);
        } catch (Exception error) {
            error.printStackTrace();
            Runtime.getRuntime().halt(1);
        }
    }

    private static void waitHealthy(String webUrl) throws Exception {
        try (PulsarAdmin admin = PulsarAdmin.builder().serviceHttpUrl(webUrl).build()) {
            for (int tried = 0; tried < TRIES; tried++) {
                try {
                    admin.brokers().healthcheck();
                    return;
                } catch (PulsarAdminException notYet) {
                    Thread.sleep(PAUSE_MS);
                }
            }
        }
        Runtime.getRuntime().halt(1);
    }
}
