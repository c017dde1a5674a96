package main

import (
	"github.com/elastic/beats/v7/libbeat/publisher/queue"
	"github.com/elastic/beats/v7/libbeat/publisher/queue/diskqueue"
	"github.com/elastic/elastic-agent-libs/logp"
)

// How a queue is opened since 8.15.
func newQueue(settings diskqueue.Settings) (queue.Queue, error) {
	return diskqueue.NewQueue(logp.NewLogger("rig"), nil, settings, nil)
}
