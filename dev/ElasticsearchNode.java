import java.nio.file.Path;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.elasticsearch.common.logging.LogConfigurator;
import org.elasticsearch.common.settings.Settings;
import org.elasticsearch.node.InternalSettingsPreparer;
import org.elasticsearch.node.Node;
import org.elasticsearch.plugins.PluginsLoader;

/** ElasticsearchNode HOME CONFIG: one node in this process, until SIGTERM. */
public class ElasticsearchNode {
    public static void main(String[] arguments) {
        try {
            LogConfigurator.registerErrorListener();
            LogConfigurator.setNodeName("node");
            var home = Settings.builder().put("path.home", arguments[0]).build();
            var config = Path.of(arguments[1]);
            var environment = InternalSettingsPreparer.prepareEnvironment(home, Map.of(), config, () -> "node");
            LogConfigurator.configure(environment, true);
            // false: the server is on the class path, and no named module whose exports could be passed on
            var modules = PluginsLoader.loadModulesBundles(environment.modulesDir());
            var node = new Node(environment, PluginsLoader.createPluginsLoader(modules, Set.of(), Map.of(), false));
            Runtime.getRuntime().addShutdownHook(new Thread(() -> stop(node)));
            node.start();
            new CountDownLatch(1).await(); // the node's own threads would not keep the process alive
        } catch (Throwable problem) { // but some threads of a half started node would
            problem.printStackTrace();
            Runtime.getRuntime().halt(1);
        }
    }

    static void stop(Node node) {
        try {
            node.prepareForClose();
            node.close();
            node.awaitClose(5, TimeUnit.SECONDS);
        } catch (Exception problem) {
            problem.printStackTrace();
        }
    }
}
