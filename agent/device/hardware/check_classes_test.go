package hardware

import (
	"os"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/islet-edge/islet/internal/config"
)

func TestExamine(t *testing.T) {
	tr := board(t)
	for pid, cgroup := range map[string]string{"10": "0::/system.slice/gpsd.service", "11": "0::/kubepods/pod1/c"} {
		tr.dir("/proc/" + pid + "/fd")
		tr.file("/proc/"+pid+"/cgroup", cgroup+"\n")
		tr.file("/proc/"+pid+"/comm", "gpsd\n")
	}
	tr.requireNoError(os.Symlink(tr.absolutePath("/dev/ttyACM0"), tr.absolutePath("/proc/10/fd/3")))
	tr.requireNoError(os.Symlink(tr.absolutePath("/dev/ttyUSB0"), tr.absolutePath("/proc/11/fd/3")))
	grouped := class("islet.dev/gpio", paths("/dev/gpiochip*"))
	grouped.Group = new(intstr.FromString("nobodys"))
	got, err := CheckClasses([]config.DeviceClass{
		class("islet.dev/gps", paths("/dev/ttyACM*")), serialClass(), class("islet.dev/none", paths("/dev/nothing*")),
		class("islet.dev/disk", paths("/dev/mmcblk0p1")), grouped,
	}, tr.root)
	tr.requireNoError(err)
	var text []string
	for _, c := range got {
		if c.Advice == "" || c.Absent != (c.Resource == "islet.dev/none") {
			t.Errorf("%+v", c)
		}
		text = append(text, c.What)
	}
	want := `/dev/ttyACM0 of islet.dev/gps is open in gpsd (process 10) on the host
this machine currently has no device of islet.dev/none
/dev/mmcblk0p1 matches islet.dev/disk, but no container gets it: it is mounted on the host at /
the host has no group nobodys, which the configuration of the node sets for islet.dev/gpio`
	if strings.Join(text, "\n") != want {
		t.Errorf("%s", strings.Join(text, "\n"))
	}
}
