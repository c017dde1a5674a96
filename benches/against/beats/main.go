// Bench puts and gets events through the disk queue of Beats, in Go.
//
//	bench <folder> <count> <batch> <bytes>
//
// `batch` events are published, then their acks are awaited: the queue syncs what it writes before
// it acks. Then as many are got and acked at once. One line of JSON: ns per event.
package main

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/elastic/beats/v7/libbeat/beat"
	"github.com/elastic/beats/v7/libbeat/publisher"
	"github.com/elastic/beats/v7/libbeat/publisher/queue"
	"github.com/elastic/beats/v7/libbeat/publisher/queue/diskqueue"
	"github.com/elastic/elastic-agent-libs/logp"
	"github.com/elastic/elastic-agent-libs/mapstr"
)

func number(at int) int {
	found, err := strconv.Atoi(os.Args[at])
	check(err)
	return found
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func main() {
	count, batch, size := number(2), number(3), number(4)
	settings := diskqueue.DefaultSettings()
	settings.Path = os.Args[1]
	found, err := diskqueue.NewQueue(logp.NewLogger("bench"), nil, settings, nil)
	check(err)
	written := make(chan int, 1<<16)
	producer := found.Producer(queue.ProducerConfig{ACK: func(n int) { written <- n }})
	event := publisher.Event{Content: beat.Event{
		Timestamp: time.Now().UTC(), Fields: mapstr.M{"message": strings.Repeat("x", size)},
	}}
	start := time.Now()
	for put := 0; put < count; put += batch {
		for at := 0; at < batch; at++ {
			if _, ok := producer.Publish(event); !ok {
				check(fmt.Errorf("the event was refused"))
			}
		}
		for left := batch; left > 0; {
			left -= <-written
		}
	}
	put := time.Since(start)
	start = time.Now()
	for got := 0; got < count; {
		some, err := found.Get(batch)
		check(err)
		got += some.Count()
		some.Done()
	}
	get := time.Since(start)
	fmt.Printf(`{"put_ns": %d, "get_ns": %d}`+"\n", put.Nanoseconds()/int64(count),
		get.Nanoseconds()/int64(count))
}
