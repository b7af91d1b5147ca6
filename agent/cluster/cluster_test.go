package cluster

import (
	"os"
	"testing"

	"github.com/islet-edge/islet/edge/link"
	"github.com/islet-edge/islet/internal/eventtest"
)

func TestMain(m *testing.M) { os.Exit(eventtest.Main(m, "cluster")) }

// TestReport checks that the Node gets an event when an operator must repair the link, and for no other reason.
func TestReport(t *testing.T) {
	for reason, want := range map[string]bool{
		link.ReasonCertificateExpired: true, link.ReasonUnauthorized: true, link.ReasonServerCertificate: true, link.ReasonNotServer: true, link.ReasonDuplicate: true,
		link.ReasonUnreachable: false, link.ReasonNotReady: false, link.ReasonNoCredentials: false, link.ReasonBootstrapping: false, "": false,
	} {
		told := 0
		recordLinkDown(link.State{Phase: link.Down, Reason: reason, Message: "why"}, func(kind, reason, message string) {
			eventtest.RecordEvent(kind, reason, message)
			told++
		})
		if told > 1 || told == 1 != want {
			t.Errorf("%q: %d events", reason, told)
		}
	}
}
