package host

import (
	"cmp"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// A Temperature is the reading of one sensor.
type Temperature struct {
	Name    string  `json:"name"`
	Celsius float64 `json:"celsius"`
}

// Power has a board's warnings about its power supply and its throttling: those that hold now, and
// those that have occurred since boot.
type Power struct {
	Now   []string `json:"now,omitempty"`
	Since []string `json:"sinceBoot,omitempty"`
}

// Board holds the readings of the machine's sensors, as far as the kernel shows them.
type Board struct {
	Temperatures []Temperature `json:"temperatures,omitempty"`
	Power        Power         `json:"power,omitzero"`
	MHz          float64       `json:"mhz,omitempty"`    // of the first CPU, now; 0 if unknown
	MaxMHz       float64       `json:"maxMHz,omitempty"` // the maximum
}

// maxSensors is how many sensors are read.
const maxSensors = 32

// Board reads the sensors. A machine without sensors has no readings.
func (h *Host) Board() (b Board) {
	zones, _ := filepath.Glob(h.path("sys/class/thermal/thermal_zone*"))
	for _, dir := range zones[:min(len(zones), maxSensors)] {
		b.temperature(cmp.Or(first(dir, "type"), filepath.Base(dir)), first(dir, "temp"))
	}
	if len(zones) == 0 { // many PCs have only hwmon
		inputs, _ := filepath.Glob(h.path("sys/class/hwmon/hwmon*/temp*_input"))
		for _, f := range inputs[:min(len(inputs), maxSensors)] {
			dir, file := filepath.Split(f)
			label := first(dir, strings.TrimSuffix(file, "_input")+"_label")
			b.temperature(strings.TrimSpace(first(dir, "name")+" "+label), first(dir, file))
		}
	}
	b.power(h)
	b.MHz, b.MaxMHz = h.mega("scaling_cur_freq"), h.mega("cpuinfo_max_freq")
	return b
}

func (h *Host) mega(file string) float64 {
	n, err := strconv.ParseUint(h.line("sys/devices/system/cpu/cpu0/cpufreq/"+file), 10, 32)
	if err != nil {
		return 0
	}
	return float64(n) / 1000 // the file has kHz
}

func (b *Board) temperature(name, milli string) {
	n, err := strconv.ParseInt(milli, 10, 64)
	if err != nil || n < -100_000 || n > 200_000 { // no sensor, or an implausible value
		return
	}
	b.Temperatures = append(b.Temperatures, Temperature{name, float64(n) / 1000})
}

// throttled are the flags of a Raspberry Pi's firmware. The flags since boot are 16 bits higher.
// https://www.raspberrypi.com/documentation/computers/os.html#get_throttled
var throttled = []string{"under-voltage", "frequency capped", "throttled", "soft temperature limit"}

// power reads the firmware's flags, or the alarm of the power supply, which newer kernels show in
// hwmon.
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

// first returns the trimmed first line of a file, or "".
func first(dir, name string) string {
	f, err := os.Open(filepath.Join(dir, name))
	if err != nil {
		return ""
	}
	defer f.Close()
	data := make([]byte, 256)
	n, _ := f.Read(data) // a sensor may fail, and then has no value
	line, _, _ := strings.Cut(string(data[:n]), "\n")
	return strings.TrimSpace(line)
}
