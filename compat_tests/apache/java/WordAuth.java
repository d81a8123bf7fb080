import java.nio.charset.StandardCharsets;
import org.apache.bookkeeper.auth.AuthCallbacks;
import org.apache.bookkeeper.auth.AuthToken;
import org.apache.bookkeeper.auth.BookieAuthProvider;
import org.apache.bookkeeper.auth.ClientAuthProvider;
import org.apache.bookkeeper.client.BKException;
import org.apache.bookkeeper.conf.ClientConfiguration;
import org.apache.bookkeeper.conf.ServerConfiguration;
import org.apache.bookkeeper.proto.BookieConnectionPeer;
import org.apache.bookkeeper.proto.ClientConnectionPeer;

/**
 * Plug-ins for BookKeeper's authentication: the client proves by three rounds that it knows a word,
 * the property {@code word}.
 */
public final class WordAuth {
    private static final String NAME = "WordPlugin";
    private static final int ROUNDS = 3;

    private WordAuth() {}

    private static AuthToken token(String text) {
        return AuthToken.wrap(text.getBytes(StandardCharsets.UTF_8));
    }

    private static String text(AuthToken token) {
        return new String(token.getData(), StandardCharsets.UTF_8);
    }

    private static String proof(int round) {
        return System.getProperty("word", "word") + " " + round;
    }

    /** Of a bookie. */
    public static final class Bookie implements BookieAuthProvider.Factory {
        @Override
        public String getPluginName() {
            return NAME;
        }

        @Override
        public void init(ServerConfiguration conf) {}

        @Override
        public BookieAuthProvider newProvider(
                BookieConnectionPeer peer, AuthCallbacks.GenericCallback<Void> complete) {
            return new BookieAuthProvider() {
                private int rounds;

                @Override
                public void process(AuthToken said, AuthCallbacks.GenericCallback<AuthToken> answer) {
                    if (!text(said).equals(proof(rounds))) {
                        answer.operationComplete(BKException.Code.UnauthorizedAccessException, null);
                        return;
                    }
                    rounds++;
                    if (rounds == ROUNDS) {
                        complete.operationComplete(BKException.Code.OK, null);
                    }
                    answer.operationComplete(BKException.Code.OK, token("ok " + rounds));
                }
            };
        }
    }

    /** Of a client. */
    public static final class Client implements ClientAuthProvider.Factory {
        @Override
        public String getPluginName() {
            return NAME;
        }

        @Override
        public void init(ClientConfiguration conf) {}

        @Override
        public ClientAuthProvider newProvider(
                ClientConnectionPeer peer, AuthCallbacks.GenericCallback<Void> complete) {
            return new ClientAuthProvider() {
                @Override
                public void init(AuthCallbacks.GenericCallback<AuthToken> send) {
                    send.operationComplete(BKException.Code.OK, token(proof(0)));
                }

                @Override
                public void process(AuthToken said, AuthCallbacks.GenericCallback<AuthToken> send) {
                    int round = Integer.parseInt(text(said).substring(3));
                    if (round == ROUNDS) {
                        complete.operationComplete(BKException.Code.OK, null);
                    } else {
                        send.operationComplete(BKException.Code.OK, token(proof(round)));
                    }
                }
            };
        }
    }
}
