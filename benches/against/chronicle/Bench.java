import java.util.Arrays;
import net.openhft.chronicle.bytes.Bytes;
import net.openhft.chronicle.queue.ChronicleQueue;
import net.openhft.chronicle.queue.ExcerptAppender;
import net.openhft.chronicle.queue.ExcerptTailer;
import net.openhft.chronicle.queue.impl.single.SingleChronicleQueueBuilder;

/** Appends and reads messages one by one, and prints what one took as JSON. */
public class Bench {
    public static void main(String[] args) {
        int count = Integer.parseInt(args[1]);
        byte[] body = new byte[Integer.parseInt(args[2])];
        Arrays.fill(body, (byte) 'x');
        run(args[0] + "-warm", 200_000, body);
        System.out.println(run(args[0], count, body));
    }

    static String run(String path, int count, byte[] body) {
        long[] taken = new long[count];
        try (ChronicleQueue queue = SingleChronicleQueueBuilder.binary(path).build();
                ExcerptAppender appender = queue.createAppender();
                ExcerptTailer tailer = queue.createTailer()) {
            Bytes<?> in = Bytes.wrapForRead(body);
            Bytes<?> out = Bytes.elasticByteBuffer(body.length);
            long begun = System.nanoTime();
            for (int i = 0; i < count; i++) {
                long start = System.nanoTime();
                in.readPosition(0);
                appender.writeBytes(in);
                taken[i] = System.nanoTime() - start;
            }
            double put = (System.nanoTime() - begun) / (double) count;
            begun = System.nanoTime();
            for (int i = 0; i < count; i++) {
                out.clear();
                if (!tailer.readBytes(out) || out.readRemaining() != body.length) {
                    throw new IllegalStateException("message " + i + " is missing");
                }
            }
            double get = (System.nanoTime() - begun) / (double) count;
            Arrays.sort(taken);
            StringBuilder json = new StringBuilder();
            json.append(String.format("{\"put_ns\": %.1f, \"get_ns\": %.1f", put, get));
            for (String at : new String[] {"50", "99", "99.9", "99.99", "99.999", "100"}) {
                int rank = (int) Math.ceil(count * Double.parseDouble(at) / 100) - 1;
                json.append(String.format(", \"p%s\": %d", at, taken[Math.max(rank, 0)]));
            }
            return json.append("}").toString();
        }
    }
}
