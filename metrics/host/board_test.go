package host_test

import (
	"os"
	"path/filepath"
	"reflect"
	"testing"

	"github.com/islet-edge/islet/metrics/host"
)

func TestBoard(t *testing.T) {
	for name, x := range map[string]struct {
		files map[string]string
		want  host.Board
	}{
		"a Raspberry Pi whose supply is weak": {map[string]string{
			"sys/class/thermal/thermal_zone0/type": "cpu-thermal\n", "sys/class/thermal/thermal_zone0/temp": "61234\n",
			"sys/class/hwmon/hwmon0/temp1_input":                   "1000\n",
			"sys/devices/platform/soc/soc:firmware/get_throttled":  "50005\n",
			"sys/devices/system/cpu/cpu0/cpufreq/scaling_cur_freq": "600000\n", "sys/devices/system/cpu/cpu0/cpufreq/cpuinfo_max_freq": "1800000\n",
		}, host.Board{Temperatures: []host.Temperature{{"cpu-thermal", 61.234}}, Power: host.Power{Now: []string{"under-voltage", "throttled"}, Since: []string{"under-voltage", "throttled"}}, MHz: 600, MaxMHz: 1800}},
		"its alarm in hwmon, and a sensor that says nonsense": {map[string]string{
			"sys/class/hwmon/hwmon1/in0_lcrit_alarm": "1\n", "sys/class/hwmon/hwmon1/name": "rpi_volt\n",
			"sys/class/hwmon/hwmon2/temp1_input": "45000\n", "sys/class/hwmon/hwmon2/name": "coretemp\n", "sys/class/hwmon/hwmon2/temp1_label": "Package\n",
			"sys/class/hwmon/hwmon2/temp2_input": "999999999\n",
		}, host.Board{Temperatures: []host.Temperature{{"coretemp Package", 45}}, Power: host.Power{Now: []string{"under-voltage"}}}},
		"all is well": {map[string]string{"sys/class/hwmon/hwmon1/in0_lcrit_alarm": "0\n", "sys/devices/platform/soc/soc:firmware/get_throttled": "0\n"}, host.Board{}},
		"a PC":        {nil, host.Board{}},
	} {
		t.Run(name, func(t *testing.T) {
			root := t.TempDir()
			for file, text := range x.files {
				path := filepath.Join(root, file)
				if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			if got := host.New(host.Config{Root: root}).Board(); !reflect.DeepEqual(got, x.want) {
				t.Errorf("%+v, want %+v", got, x.want)
			}
		})
	}
}
