package main

import (
	"fmt"
	"time"

	"github.com/elastic/beats/v7/libbeat/beat"
	"github.com/elastic/beats/v7/libbeat/common"
	"github.com/elastic/beats/v7/libbeat/logp"
	"github.com/elastic/beats/v7/libbeat/publisher"
	"github.com/elastic/beats/v7/libbeat/publisher/queue"
	"github.com/elastic/beats/v7/libbeat/publisher/queue/diskqueue"
)

// Releases before 8: a consumer of its own, maps called common.MapStr.
type oldBeat struct {
	queue    queue.Queue
	consumer queue.Consumer
	producer queue.Producer
	written  chan int
}

func open(folder string, segmentBytes uint64, _ bool) (Beat, error) {
	settings := diskqueue.DefaultSettings()
	settings.Path, settings.MaxSegmentSize = folder, segmentBytes
	settings.MaxBufferSize = 0
	found, err := diskqueue.NewQueue(logp.NewLogger("rig"), settings)
	if err != nil {
		return nil, err
	}
	beat := &oldBeat{queue: found, consumer: found.Consumer(), written: make(chan int, 1<<16)}
	beat.producer = found.Producer(queue.ProducerConfig{ACK: func(n int) { beat.written <- n }})
	return beat, nil
}

func (b *oldBeat) Put(events []Event) error {
	for _, event := range events {
		flags := publisher.EventFlags(0)
		if event.Guaranteed {
			flags = publisher.GuaranteedSend
		}
		content := beat.Event{
			Timestamp: time.Unix(0, event.TimestampNs).UTC(),
			Meta:      common.MapStr(plainMap(event.Meta)),
			Fields:    common.MapStr(plainMap(event.Fields)),
		}
		if !b.producer.Publish(publisher.Event{Content: content, Flags: flags}) {
			return fmt.Errorf("the event was refused")
		}
	}
	for left := len(events); left > 0; {
		left -= <-b.written
	}
	return nil
}

func (b *oldBeat) Take() (Event, func(), error) {
	batch, err := b.consumer.Get(1)
	if err != nil {
		return Event{}, nil, err
	}
	found := batch.Events()[0]
	content := found.Content
	event := Event{content.Timestamp.UnixNano(), found.Guaranteed(),
		tagged(map[string]interface{}(content.Meta)), tagged(map[string]interface{}(content.Fields))}
	return event, batch.ACK, nil
}

func (b *oldBeat) Close() {
	b.queue.Close()
}
