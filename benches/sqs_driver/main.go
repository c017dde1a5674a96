// A load driver for SQS servers: connections that keep asking, one request each at a time.
//
// Python can't drive a server without taking as much of the machine as the server does. This needs
// Go and nothing besides. It prints one JSON object: messages a second, latencies, and the CPU time
// of the driver and of the server's processes.
package main

import (
	"bufio"
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"sort"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

const batch = 10

var (
	address     = flag.String("address", "127.0.0.1:9324", "host:port of the server")
	kind        = flag.String("kind", "send", "send, receive, send10, receive10, lease10, empty")
	queue       = flag.String("queue", "bench", "the queue; it is made when it is not there")
	messages    = flag.Int64("messages", 20000, "how many")
	connections = flag.Int("connections", 32, "how many at a time")
	size        = flag.Int("size", 1024, "bytes of a body")
	visibility  = flag.Int("visibility", 600, "seconds that a received message stays away")
	key         = flag.String("key", "test", "the access key")
	secret      = flag.String("secret", "test", "the secret key")
	pids        = flag.String("pids", "", "processes of the server, separated by commas")
)

func fail(text string) {
	fmt.Fprintln(os.Stderr, "sqs_driver:", text)
	os.Exit(1)
}

// Signing ────────────────────────────────────────────────────────────────────────────────────────

type signer struct {
	stamp, scope string
	key          []byte
}

func mac(key []byte, text string) []byte {
	state := hmac.New(sha256.New, key)
	state.Write([]byte(text))
	return state.Sum(nil)
}

func newSigner() *signer {
	now := time.Now().UTC()
	day := now.Format("20060102")
	made := mac(mac(mac(mac([]byte("AWS4"+*secret), day), "us-east-1"), "sqs"), "aws4_request")
	return &signer{now.Format("20060102T150405Z"), day + "/us-east-1/sqs/aws4_request", made}
}

// request is a whole signed request, as it goes over the wire.
func (s *signer) request(action string, body []byte) []byte {
	target := "AmazonSQS." + action
	digest := sha256.Sum256(body)
	canonical := "POST\n/\n\ncontent-type:application/x-amz-json-1.0\nhost:" + *address +
		"\nx-amz-date:" + s.stamp + "\nx-amz-target:" + target +
		"\n\ncontent-type;host;x-amz-date;x-amz-target\n" + hex.EncodeToString(digest[:])
	hashed := sha256.Sum256([]byte(canonical))
	text := "AWS4-HMAC-SHA256\n" + s.stamp + "\n" + s.scope + "\n" + hex.EncodeToString(hashed[:])
	signature := hex.EncodeToString(mac(s.key, text))
	head := "POST / HTTP/1.1\r\nHost: " + *address +
		"\r\nContent-Type: application/x-amz-json-1.0\r\nX-Amz-Target: " + target +
		"\r\nX-Amz-Date: " + s.stamp + "\r\nAuthorization: AWS4-HMAC-SHA256 Credential=" + *key +
		"/" + s.scope + ", SignedHeaders=content-type;host;x-amz-date;x-amz-target, Signature=" +
		signature + "\r\nContent-Length: " + strconv.Itoa(len(body)) + "\r\n\r\n"
	return append([]byte(head), body...)
}

// Connections ────────────────────────────────────────────────────────────────────────────────────

type connection struct {
	socket net.Conn
	reader *bufio.Reader
	body   []byte
}

func (c *connection) open() {
	socket, err := net.Dial("tcp", *address)
	if err != nil {
		fail(err.Error())
	}
	c.socket, c.reader = socket, bufio.NewReaderSize(socket, 64<<10)
}

// call sends a request and returns the body of its answer, which is valid until the next call.
func (c *connection) call(request []byte) []byte {
	for attempt := 0; ; attempt++ {
		if c.socket == nil {
			c.open()
		}
		_, err := c.socket.Write(request)
		if err == nil {
			var found []byte
			if found, err = c.answer(); err == nil {
				return found
			}
		}
		if attempt > 0 {
			fail("no answer: " + err.Error())
		}
		c.socket.Close() // A connection that was kept too long: once more over a new one.
		c.socket = nil
	}
}

func (c *connection) answer() ([]byte, error) {
	line, err := c.reader.ReadSlice('\n')
	if err != nil {
		return nil, err
	}
	isOk, ends := bytes.Contains(line[:16], []byte(" 200 ")), bytes.HasPrefix(line, []byte("HTTP/1.0"))
	length, isChunked := 0, false
	for {
		if line, err = c.reader.ReadSlice('\n'); err != nil {
			return nil, err
		}
		line = bytes.TrimSpace(line)
		if len(line) == 0 {
			break
		}
		name, value, _ := bytes.Cut(line, []byte(":"))
		value = bytes.TrimSpace(value)
		switch {
		case bytes.EqualFold(name, []byte("content-length")):
			length, _ = strconv.Atoi(string(value))
		case bytes.EqualFold(name, []byte("transfer-encoding")):
			isChunked = bytes.EqualFold(value, []byte("chunked"))
		case bytes.EqualFold(name, []byte("connection")):
			ends = bytes.EqualFold(value, []byte("close"))
		}
	}
	c.body = c.body[:0]
	if isChunked {
		err = c.chunks()
	} else {
		err = c.take(length)
	}
	if err != nil {
		return nil, err
	}
	if !isOk {
		fail("refused: " + string(c.body))
	}
	if ends {
		c.socket.Close()
		c.socket = nil
	}
	return c.body, nil
}

func (c *connection) take(length int) error {
	before := len(c.body)
	c.body = append(c.body, make([]byte, length)...)
	_, err := io.ReadFull(c.reader, c.body[before:])
	return err
}

func (c *connection) chunks() error {
	for {
		line, err := c.reader.ReadSlice('\n')
		if err != nil {
			return err
		}
		length, err := strconv.ParseInt(string(bytes.TrimSpace(line)), 16, 32)
		if err != nil {
			return err
		}
		if err = c.take(int(length)); err != nil {
			return err
		}
		if _, err = c.reader.Discard(2); err != nil || length == 0 {
			return err
		}
	}
}

// Work ───────────────────────────────────────────────────────────────────────────────────────────

func asJson(value any) []byte {
	found, err := json.Marshal(value)
	if err != nil {
		fail(err.Error())
	}
	return found
}

var handleMark = []byte(`"ReceiptHandle":`)

// handles finds the receipt handles without reading the rest: they have nothing to escape.
func handles(body []byte) []string {
	var found []string
	for {
		at := bytes.Index(body, handleMark)
		if at < 0 {
			return found
		}
		body = body[at+len(handleMark):]
		body = body[bytes.IndexByte(body, '"')+1:]
		end := bytes.IndexByte(body, '"')
		found = append(found, string(body[:end]))
		body = body[end:]
	}
}

type entry struct {
	Id            string
	MessageBody   string `json:",omitempty"`
	ReceiptHandle string `json:",omitempty"`
}

func queueUrl(s *signer, c *connection) string {
	var found struct{ QueueUrl string }
	answer := c.call(s.request("CreateQueue", asJson(map[string]any{"QueueName": *queue})))
	if err := json.Unmarshal(answer, &found); err != nil {
		fail(err.Error())
	}
	return found.QueueUrl
}

// work is what one connection does again and again: it returns how many messages it did.
func work(s *signer, url string) func(*connection) int {
	text := strings.Repeat("x", *size)
	one := s.request("SendMessage", asJson(map[string]any{"QueueUrl": url, "MessageBody": text}))
	entries := make([]entry, batch)
	for at := range entries {
		entries[at] = entry{Id: strconv.Itoa(at), MessageBody: text}
	}
	ten := s.request("SendMessageBatch", asJson(map[string]any{"QueueUrl": url, "Entries": entries}))
	receive := func(count int) []byte {
		return s.request("ReceiveMessage", asJson(map[string]any{
			"QueueUrl": url, "MaxNumberOfMessages": count, "VisibilityTimeout": *visibility,
		}))
	}
	receiveOne, receiveTen := receive(1), receive(batch)
	switch *kind {
	case "send":
		return func(c *connection) int { c.call(one); return 1 }
	case "send10":
		return func(c *connection) int { c.call(ten); return batch }
	case "empty":
		return func(c *connection) int { c.call(receiveOne); return 1 }
	case "lease10":
		return func(c *connection) int { return len(handles(c.call(receiveTen))) }
	case "receive":
		return func(c *connection) int {
			found := handles(c.call(receiveOne))
			for _, handle := range found {
				c.call(s.request("DeleteMessage", asJson(map[string]any{"QueueUrl": url, "ReceiptHandle": handle})))
			}
			return len(found)
		}
	case "receive10":
		return func(c *connection) int {
			found := handles(c.call(receiveTen))
			done := make([]entry, len(found))
			for at, handle := range found {
				done[at] = entry{Id: strconv.Itoa(at), ReceiptHandle: handle}
			}
			if len(done) > 0 {
				c.call(s.request("DeleteMessageBatch", asJson(map[string]any{"QueueUrl": url, "Entries": done})))
			}
			return len(found)
		}
	}
	fail("no such kind: " + *kind)
	return nil
}

// CPU time ───────────────────────────────────────────────────────────────────────────────────────

// serverCpu is in seconds; /proc counts in hundredths.
func serverCpu() float64 {
	total := 0.0
	for _, pid := range strings.Split(*pids, ",") {
		text, err := os.ReadFile("/proc/" + pid + "/stat")
		if err != nil {
			continue
		}
		fields := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+2:]))
		for _, field := range fields[11:13] {
			ticks, _ := strconv.Atoi(field)
			total += float64(ticks) / 100
		}
	}
	return total
}

func ownCpu() float64 {
	var used syscall.Rusage
	syscall.Getrusage(syscall.RUSAGE_SELF, &used)
	return float64(used.Utime.Nano()+used.Stime.Nano()) / 1e9
}

func main() {
	flag.Parse()
	s := newSigner()
	all := make([]connection, *connections)
	url := queueUrl(s, &all[0])
	do := work(s, url)
	for at := range all {
		if all[at].socket == nil {
			all[at].open()
		}
	}
	var left, done atomic.Int64
	left.Store(*messages)
	step := int64(1)
	if strings.HasSuffix(*kind, "10") {
		step = batch
	}
	latencies := make([][]float64, *connections)
	serverBefore, ownBefore, began := serverCpu(), ownCpu(), time.Now()
	var group sync.WaitGroup
	for at := range all {
		group.Add(1)
		go func() {
			defer group.Done()
			for left.Add(-step) >= 0 {
				asked := time.Now()
				count := do(&all[at])
				latencies[at] = append(latencies[at], time.Since(asked).Seconds()*1e3)
				if count == 0 {
					return // The queue is empty.
				}
				done.Add(int64(count))
			}
		}()
	}
	group.Wait()
	seconds, count := time.Since(began).Seconds(), float64(done.Load())
	var sorted []float64
	for _, some := range latencies {
		sorted = append(sorted, some...)
	}
	sort.Float64s(sorted)
	at := func(part float64) float64 { return sorted[int(part*float64(len(sorted)-1))] }
	json.NewEncoder(os.Stdout).Encode(map[string]any{
		"kind": *kind, "messages": count, "rate": count / seconds,
		"p50_ms": at(0.5), "p99_ms": at(0.99),
		"server_us": (serverCpu() - serverBefore) / count * 1e6,
		"driver_us": (ownCpu() - ownBefore) / count * 1e6,
	})
}
