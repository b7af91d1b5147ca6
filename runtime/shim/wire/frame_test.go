package wire_test

import (
	"bytes"
	"encoding/json"
	"testing"

	"github.com/islet-edge/islet/runtime/shim/wire"
)

// FuzzFrames checks that ReadFrame never exceeds its buffer. If the frames are written again, the bytes are the same.
func FuzzFrames(f *testing.F) {
	f.Add([]byte("\x01\x00\x00\x00\x02hi\x03\x00\x00\x00\x04\x00\x50\x00\x18"))
	f.Add([]byte("\x00\xff\xff\xff\xff"))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, in []byte) {
		r, buf, read := bytes.NewReader(in), make([]byte, wire.MaxFrame), 0
		var again bytes.Buffer
		for {
			stream, p, err := wire.ReadFrame(r, buf)
			if err != nil {
				break
			}
			if len(p) > wire.MaxFrame {
				t.Fatalf("a frame of %d bytes", len(p))
			}
			read += 5 + len(p)
			if err := wire.WriteFrame(&again, stream, p); err != nil {
				t.Fatal(err)
			}
		}
		if !bytes.Equal(again.Bytes(), in[:read]) {
			t.Errorf("%q was read, %q written again", in[:read], again.Bytes())
		}
	})
}

// FuzzMessages checks that every message that can be decoded can be encoded again.
func FuzzMessages(f *testing.F) {
	f.Add([]byte(`{"id":1,"method":"run","body":{"id":"a"}}`))
	f.Add([]byte(`{"event":{"id":"a","exit":{"code":1}}}`))
	f.Fuzz(func(t *testing.T, line []byte) {
		for _, v := range []any{&wire.Request{}, &wire.Reply{}, &wire.RunRequest{}, &wire.KillRequest{}, &wire.AttachRequest{}} {
			if json.Unmarshal(line, v) != nil {
				continue
			}
			if _, err := json.Marshal(v); err != nil {
				t.Errorf("%T: %v", v, err)
			}
		}
	})
}
