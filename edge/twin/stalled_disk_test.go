package twin

import (
	"context"
	"encoding/json"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/islet-edge/islet/internal/keys"
)

// A slowDisk is a store whose writes wait until it answers.
type slowDisk struct {
	answers chan struct{}
	mu      sync.Mutex
	memory
}

func (d *slowDisk) SetMetaOrRetry(ctx context.Context, key, value string) error {
	<-d.answers
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.memory.SetMetaOrRetry(ctx, key, value)
}

// TestStalledDisk checks that renewals of the Lease do not wait for the disk. A takeover waits until its record is stored or its context
// ends, and the record of an earlier renewal does not replace it.
func TestStalledDisk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &slowDisk{answers: make(chan struct{}), memory: memory{}}
		w, err := New(t.Context(), Config{
			Node: "n", Boot: "boot", Marks: func() (s, c []string) { return []string{"one"}, nil }, Meta: d, Renew: time.Minute,
			Log: slog.New(slog.DiscardHandler),
		})
		if err != nil {
			t.Fatal(err)
		}
		w.claimName()
		began := time.Now()
		w.EvaluateLease(t.Context(), &metav1.ObjectMeta{ResourceVersion: "7"})
		annotations := map[string]string{keys.LeaseClaim: w.claim.String()}
		w.EvaluateLease(t.Context(), &metav1.ObjectMeta{Annotations: annotations}) // stores the owner
		other := nameClaim{hardware: hashOf("other"), boot: hashOf("boot of another"), term: 3}
		annotations = map[string]string{keys.LeaseClaim: other.String()}
		w.EvaluateLease(t.Context(), &metav1.ObjectMeta{Annotations: annotations}) // backs off
		if took := time.Since(began); took > 2*storeWait || w.HoldReason() == "" || d.memory[MetaKey] != "" {
			t.Errorf("after %v: %q, %s", took, w.HoldReason(), d.memory[MetaKey])
		}
		ctx, stop := context.WithTimeout(t.Context(), time.Minute)
		defer stop()
		w.storeRecord(ctx) // gives up, because the earlier write has not ended
		taken := make(chan error, 1)
		go func() { _, err := w.TakeOver(t.Context(), true); taken <- err }()
		synctest.Wait()
		select {
		case err := <-taken:
			t.Fatal("the takeover did not wait for its record:", err)
		default:
		}
		close(d.answers)
		if err := <-taken; err != nil {
			t.Error(err)
		}
		synctest.Wait()
		var rec record
		if err := json.Unmarshal([]byte(d.memory[MetaKey]), &rec); err != nil || !rec.Taking || rec.Backed != "" {
			t.Errorf("%s: %v", d.memory[MetaKey], err)
		}
	})
}
