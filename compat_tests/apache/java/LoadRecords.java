import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.Map;
import org.apache.pulsar.common.policies.data.ResourceQuota;
import org.apache.pulsar.common.util.ObjectMapperFactory;
import org.apache.pulsar.policies.data.loadbalancer.BundleData;
import org.apache.pulsar.policies.data.loadbalancer.LoadManagerReport;
import org.apache.pulsar.policies.data.loadbalancer.LoadReport;
import org.apache.pulsar.policies.data.loadbalancer.LocalBrokerData;
import org.apache.pulsar.policies.data.loadbalancer.TimeAverageBrokerData;

/**
 * Reads records of load balancing and writes them again, as Apache's broker does. A line of input is
 * the name of a class, a tab and JSON; the answer is a line of JSON, or "error: ..." if the class
 * doesn't take it. A broker reads reports of either load manager as LoadManagerReport.
 */
public final class LoadRecords {
    private static final Map<String, Class<?>> KINDS = Map.of(
            "LoadManagerReport", LoadManagerReport.class,
            "LocalBrokerData", LocalBrokerData.class,
            "LoadReport", LoadReport.class,
            "BundleData", BundleData.class,
            "TimeAverageBrokerData", TimeAverageBrokerData.class,
            "ResourceQuota", ResourceQuota.class);

    public static void main(String[] args) throws Exception {
        ObjectMapper mapper = ObjectMapperFactory.getMapper().getObjectMapper();
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String[] fields = line.split("\t", 2);
            try {
                Object record = mapper.readValue(fields[1], KINDS.get(fields[0]));
                System.out.println(mapper.writeValueAsString(record));
            } catch (Exception e) {
                System.out.println("error: " + e.getMessage().replace('\n', ' '));
            }
        }
        System.out.flush();
        System.exit(0);
    }
}
