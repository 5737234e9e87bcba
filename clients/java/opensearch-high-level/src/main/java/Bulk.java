// BulkProcessor of the high-level REST client; ../../../../../../README.md says what is asked of it.

import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.http.HttpHost;
import org.opensearch.action.bulk.BulkItemResponse;
import org.opensearch.action.bulk.BulkProcessor;
import org.opensearch.action.bulk.BulkRequest;
import org.opensearch.action.bulk.BulkResponse;
import org.opensearch.action.delete.DeleteRequest;
import org.opensearch.action.index.IndexRequest;
import org.opensearch.action.update.UpdateRequest;
import org.opensearch.client.RequestOptions;
import org.opensearch.client.RestClient;
import org.opensearch.client.RestHighLevelClient;

public class Bulk {
    static final String NAME = "processor";

    public static void main(String[] arguments) throws Exception {
        String index = arguments[1];
        AtomicInteger ok = new AtomicInteger();
        List<String> failed = Collections.synchronizedList(new ArrayList<>());
        List<Throwable> broken = Collections.synchronizedList(new ArrayList<>());
        BulkProcessor.Listener listener = new BulkProcessor.Listener() {
            public void beforeBulk(long id, BulkRequest request) {}

            public void afterBulk(long id, BulkRequest request, BulkResponse response) {
                for (BulkItemResponse item : response) {
                    if (!item.isFailed()) {
                        // What programs log of it must not fail either.
                        item.getResponse().toString();
                        ok.incrementAndGet();
                    } else if (item.getFailure().getStatus().getStatus() == 400) {
                        failed.add(item.getId());
                    } else {
                        broken.add(new Exception(item.getFailureMessage()));
                    }
                }
            }

            public void afterBulk(long id, BulkRequest request, Throwable failure) {
                broken.add(failure);
            }
        };
        try (RestHighLevelClient client = new RestHighLevelClient(RestClient.builder(HttpHost.create(arguments[0])))) {
            BulkProcessor processor = BulkProcessor.builder(
                (request, done) -> client.bulkAsync(request, RequestOptions.DEFAULT, done), listener)
                .setBulkActions(300).setConcurrentRequests(3).build();
            for (int n = 0; n < 1000; n++) {
                if (n == 500) {
                    processor.add(new IndexRequest(index).id(NAME + "-bad").source(Map.of("n", "not a number")));
                }
                String line = "line " + n + " of " + NAME + ": é 日本 🦀 \"quoted\"";
                processor.add(new IndexRequest(index).id(NAME + "-" + n).source(Map.of("n", n, "line", line)));
            }
            processor.add(new UpdateRequest(index, "old-" + NAME).doc(Map.of("n", -1)));
            processor.add(new DeleteRequest(index, "gone-" + NAME));
            if (!processor.awaitClose(60, TimeUnit.SECONDS) || !broken.isEmpty()) {
                for (Throwable failure : broken) {
                    failure.printStackTrace();
                }
                System.exit(1);
            }
        }
        String names = failed.isEmpty() ? "" : "\"" + String.join("\",\"", failed) + "\"";
        System.out.println("{\"" + NAME + "\":{\"ok\":" + ok + ",\"failed\":[" + names + "]}}");
    }
}
