package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"
)

// A spool keeps lines in a file until a server has acknowledged them.
type spool struct {
	mu    sync.Mutex
	queue *os.File // all lines
	sent  string   // name of the file with the number of bytes of queue that are acknowledged
	added chan struct{}
}

func openSpool(dir string) (*spool, error) {
	f, err := os.OpenFile(filepath.Join(dir, "queue"), os.O_RDWR|os.O_APPEND|os.O_CREATE, 0o644)
	if err != nil {
		return nil, err
	}
	return &spool{queue: f, sent: filepath.Join(dir, "sent"), added: make(chan struct{}, 1)}, nil
}

// add stores a line. The line is on the disk when add returns.
func (s *spool) add(line string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, err := fmt.Fprintln(s.queue, line)
	err = errors.Join(err, s.queue.Sync())
	select {
	case s.added <- struct{}{}:
	default:
	}
	return err
}

// forward sends the stored lines to a server, in their order. It repeats a line that the server has not acknowledged.
func (s *spool) forward(ctx context.Context, addr string) {
	for ctx.Err() == nil {
		if err := s.drain(ctx, addr); err != nil {
			fmt.Println("not forwarded:", err)
		}
		_ = waitFor(ctx, "200ms") // poll, because nothing reports that a server can be reached again
	}
}

// drain sends lines until an error occurs or the context ends.
func (s *spool) drain(ctx context.Context, addr string) error {
	c, err := net.DialTimeout("tcp", addr, replyTimeout)
	if err != nil {
		return err
	}
	defer c.Close()
	in := bufio.NewReader(c)
	at, err := readNumber(s.sent)
	if err != nil {
		return err
	}
	for ctx.Err() == nil {
		b, err := os.ReadFile(s.queue.Name())
		if err != nil {
			return err
		}
		line, _, whole := strings.Cut(string(b[at:]), "\n")
		if !whole {
			select {
			case <-s.added:
			case <-ctx.Done():
			case <-time.After(time.Second): // the line may have been added before the file was read
			}
			continue
		}
		reply, err := exchange(c, in, line)
		if err != nil {
			return err
		}
		if reply != "ok" {
			return errors.New(reply)
		}
		at += len(line) + 1
		if err := writeNumber(s.sent, at); err != nil {
			return err
		}
	}
	return nil
}

// runDatabase stores values in a file, with the inline commands of Redis: PING, SET and GET.
func runDatabase(ctx context.Context, args []string) error {
	file := filepath.Join(option(args, "--dir"), "appendonly.aof")
	var mu sync.Mutex
	return serveLines(ctx, ":6379", func(line string) string {
		mu.Lock()
		defer mu.Unlock()
		words := strings.Fields(line)
		switch {
		case len(words) == 1 && strings.EqualFold(words[0], "ping"):
			return "PONG"
		case len(words) == 3 && words[0] == "set":
			if err := add(file, words[1]+" "+words[2]+"\n"); err != nil {
				return err.Error()
			}
			return "OK"
		case len(words) == 2 && words[0] == "get":
			value := "(nil)"
			b, err := os.ReadFile(file)
			if err != nil {
				return err.Error()
			}
			for line := range strings.Lines(string(b)) {
				if v, ok := strings.CutPrefix(line, words[1]+" "); ok {
					value = strings.TrimSpace(v)
				}
			}
			return value
		}
		return "ERR unknown command"
	})
}

func askDatabase(_ context.Context, args []string) error {
	c, err := net.DialTimeout("tcp", "127.0.0.1:6379", replyTimeout)
	if err != nil {
		return err
	}
	defer c.Close()
	reply, err := exchange(c, bufio.NewReader(c), strings.Join(args, " "))
	fmt.Println(reply)
	return err
}
