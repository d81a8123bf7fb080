import java.nio.file.Path;
import org.apache.bookkeeper.bookie.BookieShell;
import org.apache.bookkeeper.conf.ServerConfiguration;
import org.apache.bookkeeper.util.EntryFormatter;
import org.apache.bookkeeper.util.LedgerIdFormatter;

/**
 * Commands of `bookkeeper shell`, one after the other. Arguments: a bookie's configuration file, then
 * a command each. Before the output of each it prints "== " and the command.
 */
public final class Shell {
    private Shell() {}

    public static void main(String[] arguments) throws Exception {
        for (int at = 1; at < arguments.length; at++) {
            System.out.println("== " + arguments[at]);
            ServerConfiguration conf = new ServerConfiguration();
            conf.loadConf(Path.of(arguments[0]).toUri().toURL());
            BookieShell shell = new BookieShell(
                    LedgerIdFormatter.newLedgerIdFormatter(conf),
                    EntryFormatter.newEntryFormatter(conf));
            shell.setConf(conf);
            int result = shell.run(arguments[at].split(" "));
            if (result != 0) {
                System.out.println("result " + result);
            }
        }
        System.out.flush();
        Runtime.getRuntime().halt(0);
    }
}
