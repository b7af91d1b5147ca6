package system

import (
	"fmt"
	"testing"
	"time"

	"github.com/islet-edge/islet/test/figures"
)

// TestFigures measures an installation and an upgrade. The results are not checked. It runs only with make bench-packages.
func TestFigures(t *testing.T) {
	figures.SkipUnlessBench(t)
	f := &figures.Table{}
	for round := range 3 {
		t.Run(fmt.Sprint(round), func(t *testing.T) {
			s := packaged(t, Systemd, "deb", 10)
			c := upgraded(s, 10, "dpkg -i /payload/islet.deb", "dpkg -i /payload/islet-next.deb")
			add := func(what string, d time.Duration, goal string) {
				f.Add(what, fmt.Sprintf("%.2f s", d.Seconds()), goal, "10 pods")
			}
			add("dpkg -i", c.installed, "")
			add("dpkg -i to the first pod running", c.first, "2 s")
			add("dpkg -i to all pods ready", c.all, "")
			add("dpkg -i of the next version", c.upgraded, "")
			add("an upgrade interrupts logs -f", c.gap, "1 s")
		})
	}
	fmt.Print("\n", f)
}
