package config

import (
	"encoding/json"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
)

// olderFlags contains flags that guides for older kubelets use.
const olderFlags = `container-runtime container-runtime-endpoint image-service-endpoint runtime-cgroups pod-infra-container-image
	network-plugin network-plugin-dir network-plugin-mtu cni-bin-dir cni-conf-dir cni-cache-dir non-masquerade-cidr configure-cbr0
	cgroup-driver cgroups-per-qos experimental-cgroups-per-qos experimental-qos-reserved allow-privileged host-network-sources
	docker docker-endpoint docker-root docker-exec-handler docker-tls docker-tls-ca docker-tls-cert docker-tls-key docker-only
	docker-env-metadata-whitelist docker-disable-shared-pid enable-cri experimental-dockershim redirect-container-streaming
	rkt-path rkt-api-endpoint rkt-stage1-image containerized google-json-key experimental-mounter-rootfs
	cadvisor-port enable-cadvisor-json-endpoints housekeeping-interval
	experimental-bootstrap-kubeconfig experimental-kernel-memcg-notification experimental-allocatable-ignore-eviction
	experimental-check-node-capabilities-before-mount experimental-fail-swap-on experimental-mounter-path
	keep-terminated-pod-volumes register-schedulable cloud-config cloud-provider azure-container-registry-config
	seccomp-profile-root master-service-namespace dynamic-config-dir init-config-dir bootstrap-checkpoint-path
	exit-on-lock-contention lock-file log-dir log-file log-file-max-size logtostderr alsologtostderr stderrthreshold
	log-backtrace-at skip-headers skip-log-headers add-dir-header one-output log-flush-frequency vmodule v
	api-servers require-kubeconfig auth-path image-pull-progress-deadline streaming-connection-idle-timeout feature-gates
	low-diskspace-threshold-mb outofdisk-transition-frequency resource-container system-container volume-plugin-dir runonce`

// TestEveryFlagOfTheKubelet checks that every flag of kubelet 1.37 and of older kubelets is accepted.
func TestEveryFlagOfTheKubelet(t *testing.T) {
	list, err := os.ReadFile("testdata/flags-1.37.txt") // the flags that the kubelet registers
	if err != nil {
		t.Fatal(err)
	}
	fs := newFlagSet(&settings{})
	for _, name := range append(strings.Fields(string(list)), strings.Fields(olderFlags)...) {
		if fs.Lookup(name) == nil && name != "version" && name != "help" { // parse handles these two flags
			t.Errorf("--%s is unknown", name)
		}
	}
}

// TestRemovedFlags checks that flags that kubelet 1.37 has removed are rejected with the error of a kubelet.
func TestRemovedFlags(t *testing.T) {
	list, err := os.ReadFile("testdata/flags-1.37.txt")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range removedFlags() {
		_, _, err := Load([]string{"--hostname-override=n", "--state-dir=" + t.TempDir(), "--" + name + "=x"})
		if err == nil || !strings.HasPrefix(err.Error(), "unknown flag: --"+name+"; Kubernetes 1.37 removed it") {
			t.Errorf("--%s: %v", name, err)
		}
		if slices.Contains(strings.Fields(string(list)), name) {
			t.Errorf("--%s: a kubelet 1.37 has it", name)
		}
	}
}

// TestEveryFlagTakesEffectOrSaysWhyNot checks that a flag sets its field. A flag without a field must cause a notice.
func TestEveryFlagTakesEffectOrSaysWhyNot(t *testing.T) {
	samples := map[string]string{
		"feature-gates": "A=true", "register-with-taints": "a=b:NoSchedule", "reserved-memory": "0:memory=1Gi", "vmodule": "a=7", "manifest-url-header": "a:b",
	}
	for _, row := range flagTable() {
		s := settings{KubeletConfiguration: defaultKubelet(), Edge: defaultEdge(), Flags: defaultOptions()}
		fs := newFlagSet(&s)
		sample := "77"
		var before string
		if v, bound := fs.Lookup(row.name).Value.(*flagValue); bound {
			before = v.String()
			switch {
			case samples[row.name] != "":
				sample = samples[row.name]
			case v.Type() == "duration":
				sample = "77s"
			case v.Type() == "bool":
				sample = "true"
				if before == "true" {
					sample = "false"
				}
			case strings.HasPrefix(v.Type(), "key="):
				sample = "a=77"
			}
		}
		if err := fs.parse([]string{"--" + row.name + "=" + sample}); err != nil {
			t.Errorf("--%s=%s: %v", row.name, sample, err)
			continue
		}
		if row.field != "" && fs.Lookup(row.name).Value.String() == before {
			t.Errorf("--%s=%s changes nothing", row.name, sample)
		}
		told := slices.ContainsFunc(listNotices(&Config{}, fs, nil), func(n Notice) bool { return n.Subject == "--"+row.name && n.Text != "" })
		if dead := row.none != "" || fieldRows()[row.field].none != ""; dead != told {
			t.Errorf("--%s: has no effect: %v, has a notice: %v", row.name, dead, told)
		}
	}
}

// TestDefaultsAreTheKubelets compares the defaults with defaults-1.37.json. The file contains the defaults that a kubelet sets in an empty
// KubeletConfiguration.
func TestDefaultsAreTheKubelets(t *testing.T) {
	data, err := os.ReadFile("testdata/defaults-1.37.json")
	if err != nil {
		t.Fatal(err)
	}
	var theirs, ours map[string]any
	c, _ := mustLoad(t, "--kubeconfig=/k") // a standalone node allows swap
	for _, d := range []struct {
		data []byte
		into *map[string]any
	}{{data, &theirs}, {mustJSON(t, &c.Kubelet), &ours}} {
		if err := json.Unmarshal(d.data, d.into); err != nil {
			t.Fatal(err)
		}
	}
	for _, own := range []string{ // documented in Reference
		"containerRuntimeEndpoint", "failCgroupV1",
		"evictionHard", // the kubelet adds these later, as DefaultEvictionHard
	} {
		delete(theirs, own)
		delete(ours, own)
	}
	for name := range ours {
		if !reflect.DeepEqual(ours[name], theirs[name]) {
			t.Errorf("%s is %v, the kubelet's %v", name, ours[name], theirs[name])
		}
		delete(theirs, name)
	}
	if len(theirs) > 0 {
		t.Errorf("without a default here: %v", theirs)
	}
}

func mustJSON(t *testing.T, v any) []byte {
	t.Helper()
	data, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return data
}
