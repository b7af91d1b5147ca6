package store

import (
	"fmt"
	"path/filepath"
	"reflect"
	"slices"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/islet-edge/islet/internal/disktest"
)

// TestUnwrittenRowsAreRepeated checks each method whose owner continues with the new value after a failure. When the disk has space again,
// the writer stores the newest value of each row, without another call.
func TestUnwrittenRowsAreRepeated(t *testing.T) {
	d := disktest.New(t)
	path := filepath.Join(d.Dir, "islet.db")
	synctest.Test(t, func(t *testing.T) {
		ctx := t.Context()
		s := open(t, path)
		key := func(name string) ObjectKey { return ObjectKey{"Secret", "default", name} }
		put := func(name, version string) error {
			return s.PutObject(ctx, Object{ObjectKey: key(name), Version: version, Data: []byte(name + version)})
		}
		certificate := func(uid, state string) error {
			return s.PutCertificate(ctx, Certificate{CertificateKey{types.UID(uid), "v", 0}, []byte(state)})
		}
		token := func(text string) error {
			return s.PutToken(ctx, Token{TokenKey{"a", "vault", 600}, text, time.Unix(100, 0), time.Unix(700, 0)})
		}
		must(t, s.UpdatePods(ctx, []Pod{pod("a", "web"), pod("b", "ended"), pod("c", "gone")}, nil))
		must(t, s.MarkFilled(ctx))
		for _, err := range []error{
			put("old", "1"), put("unused", "1"), certificate("b", "old"), certificate("c", "old"), s.SetMetaOrRetry(ctx, "key", "old"),
		} {
			must(t, err)
		}
		d.Exhaust(func(text string) error { return s.SetMeta(ctx, "text", text) })
		for i, err := range []error{
			put("old", "2"), put("old", "3"), put("new", "1"), put("dropped", "1"), s.RemoveObjects(ctx, key("dropped"), key("unused")),
			certificate("a", "new"), certificate("b", "newer"), s.RemoveCertificates(ctx, "b"), certificate("c", "newer"),
			token("first"), token("second"), s.SetMetaOrRetry(ctx, "key", "new"), s.SetMeta(ctx, "refused", "its owner knows"),
		} {
			if err == nil {
				t.Fatalf("write %d succeeded on a full disk", i)
			}
		}
		time.Sleep(time.Hour) // the writer fails again and again, in the bubble's time
		d.Free()
		must(t, s.UpdatePods(ctx, nil, []types.UID{"c"}))   // no repeated row may come back with its pod gone
		time.Sleep(2 * maxRetryPause)                       // longer than every pause, in the bubble's time
		cut := open(t, filepath.Join(d.Copy(), "islet.db")) // after a power cut
		var got []string
		objects, err := cut.Objects(ctx)
		must(t, err)
		for _, o := range objects {
			got = append(got, fmt.Sprint(o.Name, " ", o.Version, " ", string(o.Data)))
		}
		tokens, err := cut.Tokens(ctx)
		must(t, err)
		for _, k := range tokens {
			got = append(got, k.Token)
		}
		certificates, err := cut.Certificates(ctx)
		must(t, err)
		for _, c := range certificates {
			got = append(got, fmt.Sprint(c.UID, " ", string(c.State)))
		}
		for _, k := range []string{"key", "refused"} {
			if v, found, err := cut.Meta(ctx, k); err != nil || found {
				got = append(got, fmt.Sprint(k, " ", v, err))
			}
		}
		slices.Sort(got)
		if want := []string{"a new", "key new<nil>", "new 1 new1", "old 3 old3", "second"}; !reflect.DeepEqual(got, want) {
			t.Errorf("stored %q, want %q", got, want)
		}
		hold(t, s)() // the writer is idle
		if n := len(s.unwritten.rows); n > 0 {
			t.Errorf("%d rows are still repeated", n)
		}
	})
}

// TestFailingDiskDoesNotBlockTheWriter checks that another write waits for at most one attempt to write rows to a disk that returns errors
// only after a long time, however many rows could not be written.
func TestFailingDiskDoesNotBlockTheWriter(t *testing.T) {
	path := filepath.Join(t.TempDir(), "islet.db")
	const timeout = 30 * time.Second
	synctest.Test(t, func(t *testing.T) {
		s := open(t, path)
		var stored, ok atomic.Int32
		for i := range 10 {
			err := s.commitRows(t.Context(), rowChange{keyOfRow("objects", fmt.Sprint(i)), func(*transaction) error {
				if ok.Load() > 0 {
					stored.Add(1)
					return nil
				}
				time.Sleep(timeout) // a slow disk, in the bubble's time
				return syscall.EIO
			}})
			if err == nil {
				t.Fatal("the write succeeded")
			}
		}
		for i := range 30 {
			time.Sleep(7 * time.Second) // retries, in the bubble's time
			begin := time.Now()
			must(t, s.SetMeta(t.Context(), "key", fmt.Sprint(i)))
			if took := time.Since(begin); took > timeout {
				t.Errorf("a write took %v", took)
			}
		}
		ok.Store(1)
		time.Sleep(timeout + maxRetryPause + time.Second) // longer than every pause, in the bubble's time
		if n := stored.Load(); n != 10 {
			t.Errorf("%d rows are stored", n)
		}
	})
}

// TestUnwrittenVersionsAreVoid checks that an object that is written late gets no version of a history that has ended in the meantime.
func TestUnwrittenVersionsAreVoid(t *testing.T) {
	d := disktest.New(t)
	path := filepath.Join(d.Dir, "islet.db")
	for _, full := range []bool{true, false} { // during VoidObjects
		synctest.Test(t, func(t *testing.T) {
			s := open(t, path)
			must(t, s.PutObject(t.Context(), Object{ObjectKey: ObjectKey{"Secret", "default", "other"}, Version: "7"}))
			d.Exhaust(func(text string) error { return s.SetMeta(t.Context(), "text", text) })
			if err := s.PutObject(t.Context(), Object{ObjectKey: ObjectKey{"Secret", "default", "wifi"}, Version: "7"}); err == nil {
				t.Fatal("the disk is not full")
			}
			if !full {
				d.Free()
			}
			if err := s.VoidObjects(t.Context()); (err != nil) != full {
				t.Error(err)
			}
			if full {
				d.Free()
			}
			time.Sleep(2 * maxRetryPause) // longer than every pause, in the bubble's time
			objects, err := s.Objects(t.Context())
			if err != nil || len(objects) != 2 || objects[0].Version+objects[1].Version != "" {
				t.Error(objects, err)
			}
			for _, o := range objects {
				must(t, s.RemoveObjects(t.Context(), o.ObjectKey))
			}
		})
	}
}

// TestCloseWritesUnwrittenRows checks that Close makes a last attempt. The row is the first encrypted one, so the key file is missing, too.
func TestCloseWritesUnwrittenRows(t *testing.T) {
	d := disktest.New(t)
	s := open(t, filepath.Join(d.Dir, "islet.db"))
	d.Exhaust(func(text string) error { return s.SetMeta(t.Context(), "text", text) })
	if err := s.PutObject(t.Context(), Object{ObjectKey: ObjectKey{"Secret", "default", "wifi"}, Version: "7"}); err == nil {
		t.Fatal("the disk is not full")
	}
	d.Free()
	s = reopen(t, s)
	if objects, err := s.Objects(t.Context()); len(objects) != 1 {
		t.Error(objects, err)
	}
}
