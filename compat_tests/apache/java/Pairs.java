import com.fasterxml.jackson.databind.ObjectMapper;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import org.apache.pulsar.client.api.Message;
import org.apache.pulsar.client.api.MessageId;
import org.apache.pulsar.client.api.PulsarClient;
import org.apache.pulsar.client.api.Reader;
import org.apache.pulsar.client.api.Schema;
import org.apache.pulsar.client.api.schema.Field;
import org.apache.pulsar.client.api.schema.GenericRecord;
import org.apache.pulsar.common.schema.KeyValue;

/**
 * Reads topics of pairs by their own schemas. Arguments: service URL, topics. Prints a line of JSON
 * for each topic: a list of keys and values, or what went wrong in the place of a pair.
 */
public final class Pairs {
    private Pairs() {}

    public static void main(String[] arguments) throws Exception {
        ObjectMapper json = new ObjectMapper();
        try (PulsarClient client = PulsarClient.builder().serviceUrl(arguments[0]).build()) {
            for (int n = 1; n < arguments.length; n++) {
                List<Object> found = new ArrayList<>();
                try (Reader<GenericRecord> reader = client.newReader(Schema.AUTO_CONSUME())
                        .topic(arguments[n]).startMessageId(MessageId.earliest).create()) {
                    while (reader.hasMessageAvailable()) {
                        found.add(pair(reader.readNext(10, TimeUnit.SECONDS)));
                    }
                }
                System.out.println(json.writeValueAsString(found));
            }
        }
        System.exit(0);
    }

    private static Object pair(Message<GenericRecord> message) {
        try {
            Object value = message.getValue().getNativeObject();
            KeyValue<?, ?> pair = (KeyValue<?, ?>) value;
            List<Object> both = new ArrayList<>();
            both.add(plain(pair.getKey()));
            both.add(plain(pair.getValue()));
            return both;
        } catch (RuntimeException error) {
            return error.toString();
        }
    }

    private static Object plain(Object half) {
        if (!(half instanceof GenericRecord record)) {
            return half;
        }
        Map<String, Object> fields = new LinkedHashMap<>();
        for (Field field : record.getFields()) {
            fields.put(field.getName(), plain(record.getField(field)));
        }
        return fields;
    }
}
