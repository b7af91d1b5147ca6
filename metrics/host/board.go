package host

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// Processes are those of the whole machine, threads included.
type Processes struct{ Now, Max uint64 }

// Processes reads how many there are, and how many there may be.
func (h *Host) Processes() (p Processes, err error) {
	load := strings.Fields(h.line("proc/loadavg"))
	if len(load) < 4 {
		return p, fmt.Errorf("count processes: no %s", h.path("proc/loadavg"))
	}
	_, all, _ := strings.Cut(load[3], "/")
	if p.Now, err = strconv.ParseUint(all, 10, 64); err != nil {
		return p, fmt.Errorf("count processes: %w", err)
	}
	p.Max, err = strconv.ParseUint(h.line("proc/sys/kernel/pid_max"), 10, 64)
	if threads, e := strconv.ParseUint(h.line("proc/sys/kernel/threads-max"), 10, 64); e == nil {
		p.Max = min(p.Max, threads)
	}
	return p, err
}

// Topology counts cores and the packages that they are in; 0: the kernel does not say.
func (h *Host) Topology() (cores, sockets int) {
	files, _ := filepath.Glob(h.path("sys/devices/system/cpu/cpu[0-9]*/topology"))
	type core struct{ socket, id string }
	seen, packages := map[core]bool{}, map[string]bool{}
	for _, dir := range files {
		rel, err := filepath.Rel(h.root, dir)
		if err != nil {
			continue
		}
		c := core{h.line(rel + "/physical_package_id"), h.line(rel + "/core_id")}
		if c.id != "" {
			seen[c], packages[c.socket] = true, true
		}
	}
	return len(seen), len(packages)
}

// A Temperature is what one sensor shows.
type Temperature struct {
	Name    string  `json:"name"`
	Celsius float64 `json:"celsius"`
}

// Power is what a board says of its supply and of how it protects itself: what holds now,
// and what has held since boot.
type Power struct {
	Now   []string `json:"now,omitempty"`
	Since []string `json:"sinceBoot,omitempty"`
}

// Board are the sensors of the machine, as far as the kernel shows them.
type Board struct {
	Temperatures []Temperature `json:"temperatures,omitempty"`
	Power        Power         `json:"power,omitzero"`
}

// maxSensors bounds how many are read.
const maxSensors = 32

// Board reads the sensors now. A machine without them has none.
func (h *Host) Board() (b Board) {
	zones, _ := filepath.Glob(h.path("sys/class/thermal/thermal_zone*"))
	for _, dir := range zones[:min(len(zones), maxSensors)] {
		b.temperature(cmp.Or(first(dir, "type"), filepath.Base(dir)), first(dir, "temp"))
	}
	if len(zones) == 0 { // many PCs have hwmon only
		inputs, _ := filepath.Glob(h.path("sys/class/hwmon/hwmon*/temp*_input"))
		for _, f := range inputs[:min(len(inputs), maxSensors)] {
			dir, file := filepath.Split(f)
			label := first(dir, strings.TrimSuffix(file, "_input")+"_label")
			b.temperature(strings.TrimSpace(first(dir, "name")+" "+label), first(dir, file))
		}
	}
	b.power(h)
	return b
}

func (b *Board) temperature(name, milli string) {
	n, err := strconv.ParseInt(milli, 10, 64)
	if err != nil || n < -100_000 || n > 200_000 { // no sensor there, or nonsense
		return
	}
	b.Temperatures = append(b.Temperatures, Temperature{name, float64(n) / 1000})
}

// throttled are the bits that the firmware of a Raspberry Pi shows; those of since boot
// are 16 higher.
// https://www.raspberrypi.com/documentation/computers/os.html#get_throttled
var throttled = []string{"under-voltage", "frequency capped", "throttled", "soft temperature limit"}

// power reads the firmware's flags, or the alarm of the supply, which newer kernels show
// in hwmon.
func (b *Board) power(h *Host) {
	files, _ := filepath.Glob(h.path("sys/devices/platform/soc/soc:firmware/get_throttled"))
	more, _ := filepath.Glob(h.path("sys/devices/platform/*firmware*/get_throttled"))
	for _, f := range append(files, more...) {
		bits, err := strconv.ParseUint(strings.TrimPrefix(first(filepath.Dir(f), filepath.Base(f)), "0x"), 16, 32)
		if err != nil {
			continue
		}
		for i, name := range throttled {
			if bits&(1<<i) != 0 {
				b.Power.Now = append(b.Power.Now, name)
			}
			if bits&(1<<(16+i)) != 0 {
				b.Power.Since = append(b.Power.Since, name)
			}
		}
		return
	}
	alarms, _ := filepath.Glob(h.path("sys/class/hwmon/hwmon*/in*_lcrit_alarm"))
	for _, f := range alarms {
		if first(filepath.Dir(f), filepath.Base(f)) == "1" && !slices.Contains(b.Power.Now, throttled[0]) {
			b.Power.Now = append(b.Power.Now, throttled[0])
		}
	}
}

// first is the trimmed first line of a file, or nothing.
func first(dir, name string) string {
	data, err := os.ReadFile(filepath.Join(dir, name))
	if err != nil {
		return ""
	}
	line, _, _ := strings.Cut(string(data), "\n")
	return strings.TrimSpace(line)
}
