package operations

import (
	"testing"
	"time"

	"github.com/islet-edge/islet/internal/seriestest"
	"github.com/islet-edge/islet/net/cni"
)

// TestAlertSeries records the metric of repairs, for the test of the alerts: one item is damaged again after each repair, as often as
// islet repairs a contested item (TestContestedRate in net/cni).
func TestAlertSeries(t *testing.T) {
	o, r, at := New(cni.RepairedItems()...), seriestest.New("network"), time.Duration(0)
	repair := func(times int, what string) {
		for range times {
			o.CountRepair("table")
		}
		r.Scrape(t, at, what, o.repairs)
	}
	repair(0, "nothing was repaired")
	at = 30 * time.Minute
	repair(3, "a firewall was started")
	at = 4 * time.Hour
	repair(13, "another program removes the table again and again")
	for range 48 {
		at += 5 * time.Minute
		repair(1, "and still")
	}
	r.Compare(t)
}
