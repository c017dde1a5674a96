package main

import (
	"bytes"
	"fmt"
	"runtime"
	"time"

	"github.com/elastic/beats/v7/libbeat/beat"
	"github.com/elastic/beats/v7/libbeat/publisher"
	"github.com/elastic/beats/v7/libbeat/publisher/queue"
	"github.com/elastic/beats/v7/libbeat/publisher/queue/diskqueue"
	"github.com/elastic/elastic-agent-libs/mapstr"
)

// Releases from 8 on: the queue is its own consumer, maps are called mapstr.M.
type newBeat struct {
	queue    queue.Queue
	producer queue.Producer
	written  chan int
}

func open(folder string, segmentBytes uint64, isPacked bool) (Beat, error) {
	settings := diskqueue.DefaultSettings()
	settings.Path, settings.MaxSegmentSize = folder, segmentBytes
	settings.MaxBufferSize, settings.UseCompression = 0, isPacked
	found, err := newQueue(settings)
	if err != nil {
		return nil, err
	}
	beat := &newBeat{queue: found, written: make(chan int, 1<<16)}
	beat.producer = found.Producer(queue.ProducerConfig{ACK: func(n int) { beat.written <- n }})
	return beat, nil
}

func (b *newBeat) Put(events []Event) error {
	for _, event := range events {
		flags := publisher.EventFlags(0)
		if event.Guaranteed {
			flags = publisher.GuaranteedSend
		}
		content := beat.Event{
			Timestamp: time.Unix(0, event.TimestampNs).UTC(),
			Meta:      mapstr.M(plainMap(event.Meta)),
			Fields:    mapstr.M(plainMap(event.Fields)),
		}
		if _, ok := b.producer.Publish(publisher.Event{Content: content, Flags: flags}); !ok {
			return fmt.Errorf("the event was refused")
		}
	}
	for left := len(events); left > 0; {
		left -= <-b.written
	}
	return nil
}

func (b *newBeat) Take() (Event, func(), error) {
	batch, err := b.queue.Get(1)
	if err != nil {
		return Event{}, nil, err
	}
	found := batch.Entry(0).(publisher.Event)
	content := found.Content
	event := Event{content.Timestamp.UnixNano(), found.Guaranteed(),
		tagged(map[string]interface{}(content.Meta)), tagged(map[string]interface{}(content.Fields))}
	return event, batch.Done, nil
}

// Close waits until the queue's own loops are gone: at this state of the module nobody closes the
// channel of Done().
func (b *newBeat) Close() {
	b.queue.Close()
	stacks := make([]byte, 1<<20)
	for {
		all := stacks[:runtime.Stack(stacks, true)]
		if !bytes.Contains(all, []byte("Loop).run(")) && !bytes.Contains(all, []byte("Queue).run(")) {
			return
		}
		time.Sleep(time.Millisecond)
	}
}
