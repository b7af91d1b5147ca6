package host

import (
	"cmp"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// A Temperature is the value of one temperature sensor.
type Temperature struct {
	Name    string  `json:"name"`
	Celsius float64 `json:"celsius"`
}

// Power contains a board's warnings about its power supply and about throttling. The field Now contains the warnings that apply at present.
// The field Since contains the warnings that have occurred since the boot.
type Power struct {
	Now   []string `json:"now,omitempty"`
	Since []string `json:"sinceBoot,omitempty"`
}

// Board contains the values of the machine's sensors, as the kernel provides them.
type Board struct {
	Temperatures []Temperature `json:"temperatures,omitempty"`
	Power        Power         `json:"power,omitzero"`
	MHz          float64       `json:"mhz,omitempty"`    // current frequency of the first CPU; 0 if unknown
	MaxMHz       float64       `json:"maxMHz,omitempty"` // maximum frequency of the first CPU; 0 if unknown
}

// maxSensors is the maximum number of sensors that are read.
const maxSensors = 32

// Board reads the sensors. For a machine without sensors, the result is empty.
func (h *Host) Board() (b Board) {
	zones, _ := filepath.Glob(h.path("sys/class/thermal/thermal_zone*"))
	for _, dir := range zones[:min(len(zones), maxSensors)] {
		b.setTemperature(cmp.Or(firstLine(dir, "type"), filepath.Base(dir)), firstLine(dir, "temp"))
	}
	if len(zones) == 0 { // many PCs have only hwmon
		inputs, _ := filepath.Glob(h.path("sys/class/hwmon/hwmon*/temp*_input"))
		for _, f := range inputs[:min(len(inputs), maxSensors)] {
			dir, file := filepath.Split(f)
			label := firstLine(dir, strings.TrimSuffix(file, "_input")+"_label")
			b.setTemperature(strings.TrimSpace(firstLine(dir, "name")+" "+label), firstLine(dir, file))
		}
	}
	b.readPower(h)
	b.MHz, b.MaxMHz = h.readMega("scaling_cur_freq"), h.readMega("cpuinfo_max_freq")
	return b
}

func (h *Host) readMega(file string) float64 {
	n, err := strconv.ParseUint(h.readLine("sys/devices/system/cpu/cpu0/cpufreq/"+file), 10, 32)
	if err != nil {
		return 0
	}
	return float64(n) / 1000 // the value is in kHz
}

func (b *Board) setTemperature(name, milli string) {
	n, err := strconv.ParseInt(milli, 10, 64)
	if err != nil || n < -100_000 || n > 200_000 { // no sensor, or an implausible value
		return
	}
	b.Temperatures = append(b.Temperatures, Temperature{name, float64(n) / 1000})
}

// powerFlags contains the names of the flags of a Raspberry Pi's firmware. The bits 0 to 3 show which flags apply at present. The bits 16
// to 19 show which flags have applied since the boot. See https://www.raspberrypi.com/documentation/computers/os.html#get_throttled.
var powerFlags = []string{"under-voltage", "frequency capped", "throttled", "soft temperature limit"}

// readPower reads the flags of the firmware. If the kernel does not provide these flags, readPower reads the
// under-voltage alarm in hwmon, which newer kernels provide.
func (b *Board) readPower(h *Host) {
	files, _ := filepath.Glob(h.path("sys/devices/platform/soc/soc:firmware/get_throttled"))
	more, _ := filepath.Glob(h.path("sys/devices/platform/*firmware*/get_throttled"))
	for _, f := range append(files, more...) {
		bits, err := strconv.ParseUint(strings.TrimPrefix(firstLine(filepath.Dir(f), filepath.Base(f)), "0x"), 16, 32)
		if err != nil {
			continue
		}
		for i, name := range powerFlags {
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
		if firstLine(filepath.Dir(f), filepath.Base(f)) == "1" && !slices.Contains(b.Power.Now, powerFlags[0]) {
			b.Power.Now = append(b.Power.Now, powerFlags[0])
		}
	}
}

// firstLine returns the trimmed first line of a file, or "" if the file cannot be read.
func firstLine(dir, name string) string {
	f, err := os.Open(filepath.Join(dir, name))
	if err != nil {
		return ""
	}
	defer f.Close()
	data := make([]byte, 256)
	n, _ := f.Read(data) // if the read fails, the sensor has no value
	line, _, _ := strings.Cut(string(data[:n]), "\n")
	return strings.TrimSpace(line)
}
