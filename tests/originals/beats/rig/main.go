// Rig runs the disk queue of a real Beat on command, so that tests can alternate between it and
// penstock on one folder.
//
//	rig <folder> [segment bytes] [lz4]
//
// One command per line on stdin, one answer per line on stdout, all JSON:
//
//	{"do":"put","events":[…]}          the events are on the disk: {"done":n}
//	{"do":"get","count":n,"wait_ms":w} up to n events, waiting w for each: {"events":[…]}
//	{"do":"ack","count":n}             the oldest n that were got: {"done":n}
//	{"do":"close"}                     an orderly end: {"done":0}, and the program ends
//	{"do":"die"}                       SIGKILL
//
// Values carry their types: {"i":"5"} integer, {"f":"bits"} float, {"s":…} text, {"y":base64} text
// that is no UTF-8, {"b":true}, {"n":0} null, {"l":[…]}, {"m":{…}}.
package main

import (
	"bufio"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"reflect"
	"strconv"
	"syscall"
	"time"
	"unicode/utf8"
)

// Event is what every release has: times, flags, meta and fields.
type Event struct {
	TimestampNs int64       `json:"timestamp_ns"`
	Guaranteed  bool        `json:"guaranteed"`
	Meta        interface{} `json:"meta"`
	Fields      interface{} `json:"fields"`
}

// Beat is the queue of one release; see before8.go and since8.go.
type Beat interface {
	Put(events []Event) error
	Take() (Event, func(), error)
	Close()
}

type command struct {
	Do     string  `json:"do"`
	Events []Event `json:"events"`
	Count  int     `json:"count"`
	WaitMs int     `json:"wait_ms"`
}

type taken struct {
	event Event
	ack   func()
}

// Plain takes the types off a value that came in.
func plain(value interface{}) interface{} {
	for tag, inner := range value.(map[string]interface{}) {
		switch tag {
		case "i":
			if signed, err := strconv.ParseInt(inner.(string), 10, 64); err == nil {
				return signed
			}
			unsigned, _ := strconv.ParseUint(inner.(string), 10, 64)
			return unsigned
		case "f":
			bits, _ := strconv.ParseUint(inner.(string), 10, 64)
			return math.Float64frombits(bits)
		case "y":
			raw, _ := base64.StdEncoding.DecodeString(inner.(string))
			return string(raw)
		case "n":
			return nil
		case "l":
			list := []interface{}{}
			for _, one := range inner.([]interface{}) {
				list = append(list, plain(one))
			}
			return list
		case "m":
			return plainMap(value)
		default:
			return inner
		}
	}
	return nil
}

func plainMap(value interface{}) map[string]interface{} {
	found := map[string]interface{}{}
	if value == nil {
		return found
	}
	for name, one := range value.(map[string]interface{})["m"].(map[string]interface{}) {
		found[name] = plain(one)
	}
	return found
}

func typed(tag string, inner interface{}) map[string]interface{} {
	return map[string]interface{}{tag: inner}
}

// Tagged puts the types on a value that goes out, whatever kind of map a release decodes into.
func tagged(value interface{}) interface{} {
	found := reflect.ValueOf(value)
	switch found.Kind() {
	case reflect.Invalid:
		return typed("n", 0)
	case reflect.Bool:
		return typed("b", found.Bool())
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		return typed("i", strconv.FormatInt(found.Int(), 10))
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return typed("i", strconv.FormatUint(found.Uint(), 10))
	case reflect.Float32, reflect.Float64:
		return typed("f", strconv.FormatUint(math.Float64bits(found.Float()), 10))
	case reflect.String:
		if text := found.String(); utf8.ValidString(text) {
			return typed("s", text)
		}
		return typed("y", base64.StdEncoding.EncodeToString([]byte(found.String())))
	case reflect.Slice:
		list := []interface{}{}
		for at := 0; at < found.Len(); at++ {
			list = append(list, tagged(found.Index(at).Interface()))
		}
		return typed("l", list)
	case reflect.Map:
		entries := map[string]interface{}{}
		for _, name := range found.MapKeys() {
			entries[name.String()] = tagged(found.MapIndex(name).Interface())
		}
		return typed("m", entries)
	}
	return typed("s", fmt.Sprintf("a %T", value))
}

// Follow hands over one event after the other; nothing is acked by that.
func follow(beat Beat, out chan<- taken) {
	for {
		event, ack, err := beat.Take()
		if err != nil {
			return
		}
		out <- taken{event, ack}
	}
}

func main() {
	segmentBytes, _ := strconv.ParseUint(os.Args[2], 10, 64)
	beat, err := open(os.Args[1], segmentBytes, len(os.Args) > 3 && os.Args[3] == "lz4")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	coming := make(chan taken)
	go follow(beat, coming)
	var held []taken
	in, out := bufio.NewReader(os.Stdin), json.NewEncoder(os.Stdout)
	lines := json.NewDecoder(in)
	answer := func(count int) { out.Encode(map[string]int{"done": count}) }
	answer(0)
	for {
		var next command
		if lines.Decode(&next) != nil {
			return
		}
		switch next.Do {
		case "put":
			if err := beat.Put(next.Events); err != nil {
				out.Encode(map[string]string{"error": err.Error()})
				continue
			}
			answer(len(next.Events))
		case "get":
			events := []Event{}
			for len(events) < next.Count {
				select {
				case one := <-coming:
					held = append(held, one)
					events = append(events, one.event)
					continue
				case <-time.After(time.Duration(next.WaitMs) * time.Millisecond):
				}
				break
			}
			out.Encode(map[string][]Event{"events": events})
		case "ack":
			for _, one := range held[:next.Count] {
				one.ack()
			}
			held = held[next.Count:]
			answer(next.Count)
		case "close":
			beat.Close()
			answer(0)
			return
		case "die":
			syscall.Kill(os.Getpid(), syscall.SIGKILL)
		}
	}
}
