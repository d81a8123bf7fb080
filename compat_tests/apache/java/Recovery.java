import java.io.File;
import java.util.Arrays;
import org.apache.bookkeeper.bookie.BookieShell;
import org.apache.bookkeeper.conf.ServerConfiguration;
import org.apache.bookkeeper.replication.AuditorElector;
import org.apache.bookkeeper.replication.ReplicationWorker;
import org.apache.logging.log4j.Level;
import org.apache.logging.log4j.core.config.Configurator;

/**
 * Parts of auto-recovery, and commands of the shell. Arguments: a configuration file, then
 * "auditor" and an id, "worker" (both run for ever), or "shell" and commands with "--" between
 * them.
 */
public final class Recovery {
    private Recovery() {}

    public static void main(String[] arguments) {
        try {
            call(arguments);
        } catch (Exception failure) {
            failure.printStackTrace();
            Runtime.getRuntime().halt(1);
        }
    }

    private static void call(String[] arguments) throws Exception {
        ServerConfiguration conf = new ServerConfiguration();
        conf.loadConf(new File(arguments[0]).toURI().toURL());
        switch (arguments[1]) {
            case "auditor":
                new AuditorElector(arguments[2], conf).start();
                break;
            case "worker":
                new ReplicationWorker(conf).start();
                break;
            default:
                shell(conf, Arrays.copyOfRange(arguments, 2, arguments.length));
        }
        System.out.println("ready");
        System.out.flush();
        Thread.sleep(Long.MAX_VALUE);
    }

    private static void shell(ServerConfiguration conf, String[] words) throws Exception {
        Configurator.setLevel("org.apache.bookkeeper.tools", Level.INFO);
        Configurator.setLevel("org.apache.bookkeeper.bookie", Level.INFO);
        int from = 0;
        for (int at = 0; at <= words.length; at++) {
            if (at < words.length && !words[at].equals("--")) {
                continue;
            }
            String[] command = Arrays.copyOfRange(words, from, at);
            BookieShell shell = new BookieShell();
            shell.setConf(conf);
            System.out.println("> " + String.join(" ", command));
            int code = shell.run(command);
            System.out.println("= " + code);
            from = at + 1;
        }
        System.out.flush();
        Runtime.getRuntime().halt(0);
    }
}
