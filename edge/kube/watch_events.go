package kube

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
)

// errLongEvent ends a watch after an event that is longer than maxEvent. An object of the API server has this length only in JSON.
var errLongEvent = fmt.Errorf("an event of the server's watch is longer than %d MiB", maxEvent>>20)

// eventDecoder decodes the events of a watch. It differs from client-go's decoder: it also limits the size of events in JSON, uses the
// AnswerBudget, and does not keep a buffer with the size of the largest event.
type eventDecoder struct {
	in         *bufio.Reader
	body       io.Closer
	p          *requestTimeouts
	serializer limitedSerializer
	ended      bool   // an event was too long
	stop       func() // stops the timeout for the current event; nil if no timeout runs
}

func newEvents(body io.ReadCloser, p *requestTimeouts, serializer limitedSerializer) watch.Interface {
	return watch.NewStreamWatcher(&eventDecoder{in: bufio.NewReader(body), body: body, p: p, serializer: serializer},
		apierrors.NewClientErrorReporter(http.StatusInternalServerError, http.MethodGet, "ClientWatchDecoding"))
}

// Close ends the watch.
func (e *eventDecoder) Close() { _ = e.body.Close() }

// Decode waits for the next event. The error is io.EOF if the server has ended the watch.
func (e *eventDecoder) Decode() (watch.EventType, runtime.Object, error) {
	if e.ended {
		return "", nil, io.EOF
	}
	frame, mediaType, err := e.readFrame()
	defer e.p.share.release()
	if e.stop != nil {
		e.stop()
		e.stop = nil
	}
	if late := e.p.timeoutError(); err != nil && late != nil {
		err = late
	}
	if errors.Is(err, errLongEvent) { // the caller must list, because a watch from the same version would have the same event
		e.ended = true
		return watch.Error, &apierrors.NewResourceExpired(err.Error()).ErrStatus, nil
	}
	if err != nil {
		return "", nil, err
	}
	info, ok := runtime.SerializerInfoForMediaType(e.serializer.SupportedMediaTypes(), mediaType)
	if !ok || info.StreamSerializer == nil {
		return "", nil, fmt.Errorf("an event is of type %s", mediaType)
	}
	var got metav1.WatchEvent
	if res, _, err := info.StreamSerializer.Serializer.Decode(frame, nil, &got); err != nil || res != &got {
		return "", nil, fmt.Errorf("decode an event of a watch: %w", err)
	}
	switch kind := watch.EventType(got.Type); kind {
	case watch.Added, watch.Modified, watch.Deleted, watch.Error, watch.Bookmark:
		obj, err := runtime.Decode(e.serializer.DecoderToVersion(info.Serializer, nil), got.Object.Raw)
		if err != nil {
			return "", nil, fmt.Errorf("decode the object of an event: %w", err)
		}
		return kind, obj, nil
	}
	return "", nil, fmt.Errorf("an event is of the unknown type %.50q", got.Type)
}

// acquireBytes waits until the budget has room for the given number of bytes of an event. While the event uses this room, other requests
// may have to wait. A timeout therefore ends the watch if the rest of the event does not arrive.
func (e *eventDecoder) acquireBytes(bytes int) error {
	if bytes > freeAnswer && e.stop == nil {
		e.stop = e.p.startRestTimeout()
	}
	return e.p.acquireBytes(bytes)
}

// readFrame reads the bytes of an event. A protobuf event begins with its length in four bytes. The first of these bytes is zero. A JSON
// event begins with a brace.
func (e *eventDecoder) readFrame() (frame []byte, mediaType string, err error) {
	for {
		first, err := e.in.Peek(1)
		switch {
		case err != nil:
			return nil, "", err
		case first[0] == 0:
			frame, err := e.readProtobuf()
			return frame, protobuf, err
		case first[0] == '{':
			frame, err := e.readJSON()
			return frame, asJSON, err
		case first[0] != ' ' && first[0] != '\t' && first[0] != '\r' && first[0] != '\n':
			return nil, "", errors.New("the server's watch has an event that is neither protobuf nor JSON")
		}
		_, _ = e.in.Discard(1)
	}
}

func (e *eventDecoder) readProtobuf() ([]byte, error) {
	var head [4]byte
	if _, err := io.ReadFull(e.in, head[:]); err != nil {
		return nil, err
	}
	size := binary.BigEndian.Uint32(head[:])
	if size > maxEvent {
		return nil, errLongEvent
	}
	if err := e.acquireBytes(int(size)); err != nil {
		return nil, err
	}
	// Do not trust the length: let the buffer grow with the received data.
	frame, err := io.ReadAll(io.LimitReader(e.in, int64(size)))
	if err == nil && len(frame) < int(size) {
		err = io.ErrUnexpectedEOF
	}
	return frame, err
}

// readJSON reads a JSON object up to its closing brace.
func (e *eventDecoder) readJSON() (frame []byte, err error) {
	for depth, held, quoted := 0, freeAnswer, false; ; {
		c, err := e.in.ReadByte()
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		if err != nil {
			return nil, err
		}
		if frame = append(frame, c); len(frame) > maxEvent {
			return nil, errLongEvent
		}
		if len(frame) >= held { // may exceed the limit by two bytes after an escape
			held = len(frame) + freeAnswer
			if err := e.acquireBytes(held); err != nil {
				return nil, err
			}
		}
		switch {
		case quoted && c == '\\':
			if c, err = e.in.ReadByte(); err != nil {
				return nil, io.ErrUnexpectedEOF
			}
			frame = append(frame, c)
		case c == '"':
			quoted = !quoted
		case quoted:
		case c == '{' || c == '[':
			depth++
		case c == '}' || c == ']':
			depth--
			if depth == 0 {
				return frame, nil
			}
		}
	}
}
