package check

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"unicode"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/islet-edge/islet/internal/api"
	"github.com/islet-edge/islet/internal/config"
	"github.com/islet-edge/islet/internal/finding"
	"github.com/islet-edge/islet/internal/podspec"
)

// web returns the manifest of a pod with one container. The last two parameters contain additional lines for the container and for the
// spec.
func web(name, container, spec string) string {
	text := "apiVersion: v1\nkind: Pod\nmetadata:\n  name: " + name + "\nspec:\n  containers:\n  - name: web\n    image: example.com/web:1\n"
	for line := range strings.Lines(container) {
		text += "    " + strings.TrimRight(line, "\n") + "\n"
	}
	for line := range strings.Lines(spec) {
		text += "  " + strings.TrimRight(line, "\n") + "\n"
	}
	return text
}

func lines(r finding.Report) (out []string) {
	for _, f := range r.Findings {
		text := fmt.Sprintf("%s:%d: %s", f.File, f.Line, f.Severity)
		for _, part := range []string{f.Object, f.Field, f.Message} {
			if part != "" {
				text += ": " + part
			}
		}
		out = append(out, text)
	}
	return out
}

// compare checks that each finding begins with the wanted text.
func compare(t *testing.T, r finding.Report, want ...string) {
	t.Helper()
	got := lines(r)
	if !slices.EqualFunc(got, want, strings.HasPrefix) {
		t.Errorf("got\n  %s\nwant\n  %s", strings.Join(got, "\n  "), strings.Join(want, "\n  "))
	}
	if n := len(r.Findings) + r.Omitted; n != r.Errors+r.Warnings {
		t.Errorf("%d errors and %d warnings are %d findings", r.Errors, r.Warnings, n)
	}
}

func check(text string) finding.Report {
	return Rules{}.Check([]finding.File{{Name: "a.yaml", Data: []byte(text)}}, nil)
}

const configMap = "---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: settings}\ndata: {interval: 10s}\n"

// TestPods checks the findings about one file.
func TestPods(t *testing.T) {
	for name, c := range map[string]struct {
		text string
		want []string
	}{
		"good":                    {web("web", "ports: [{containerPort: 80, hostPort: 80}]\nresources: {limits: {cpu: 500m, memory: 64Mi}, requests: {memory: 1Mi}}", ""), nil},
		"invalid":                 {web("web", "prots: []", ""), []string{`a.yaml:9: error: spec.containers[0].prots: unknown field: did you mean "ports"?`}},
		"everything at once":      {web("web", "prots: []\nresources: {limits: {memory: 512m}}\nimagePullPolicy: Never", ""), []string{"a.yaml:8: warning", "a.yaml:9: error: spec.containers[0].prots", "a.yaml:10: error: pod"}},
		"misspelled, required":    {strings.Replace(web("web", "", ""), "containers:", "containres:", 1), []string{`a.yaml:6: error: spec.containres: unknown field: did you mean "containers"?`}},
		"required in another pod": {web("one", "", "") + "---\n" + strings.Replace(web("web", "", ""), "containers:", "other:", 1) + "---\n" + strings.Replace(web("two", "", ""), "containers:", "containres:", 1), []string{`a.yaml:14: error: document 2, pod "web": spec.containers: Required value`, "a.yaml:15: error: ", "a.yaml:24: error: "}},
		"invalid and unknown":     {web("web", "prots: []\nstdin: maybe", ""), []string{"a.yaml:10: error: spec.containers[0].stdin"}},
		"unknown and wrong":       {web("web", "prots: []\nimagePullPolicy: Sometimes", ""), []string{"a.yaml:9: error: spec.containers[0].prots", "a.yaml:10: error: pod \"web\": spec.containers[0].imagePullPolicy"}},
		"nothing":                 {"# nothing\n", []string{"a.yaml:0: warning: contains no pod and no object that pods use"}},
		"Compose":                 {"services:\n  web: {image: web}\n", []string{"a.yaml:1: error: services: this is a Compose file"}},
		"upper case":              {strings.Replace(web("web", "", ""), "example.com/web:1", "example.com/Web:1", 1), []string{`a.yaml:8: error: pod "web": spec.containers[0].image: "example.com/Web:1" is not an image: has upper case letters`}},
		"scheme":                  {strings.Replace(web("web", "", ""), "example.com/web:1", "https://example.com/web:1", 1), []string{`a.yaml:8: error: pod "web": spec.containers[0].image: "https://example.com/web:1" is not an image: has a scheme`}},
		"template":                {strings.Replace(web("web", "", ""), "example.com/web:1", "example.com/web:${VERSION}", 1), []string{`a.yaml:8: error: pod "web": spec.containers[0].image: "example.com/web:${VERSION}" is not an image: invalid reference format: this looks like a template`}},
		"latest":                  {strings.Replace(web("web", "", ""), "web:1", "web", 1), []string{`a.yaml:8: warning: pod "web": spec.containers[0].image: "example.com/web" may be another image at each start`}},
		"latest, fixed":           {strings.Replace(web("web", "imagePullPolicy: IfNotPresent", ""), "web:1", "web", 1), nil},
		"never":                   {web("web", "imagePullPolicy: Never", ""), []string{`a.yaml:8: warning: pod "web": spec.containers[0].image: "example.com/web:1" is never pulled: import it`}},
		"image volume":            {web("web", "", "volumes: [{name: a, image: {reference: A}}]"), []string{`a.yaml:9: error: pod "web": spec.volumes[0].image.reference: "A" is not an image`}},
		"thousandths":             {web("web", "resources:\n  limits:\n    memory: 512m", ""), []string{`a.yaml:11: error: pod "web": spec.containers[0].resources.limits[memory]: 512m is 0.512 bytes, because m means thousandths: did you mean 512Mi?`}},
		"bytes":                   {web("web", "resources:\n  limits:\n    memory: 512", ""), []string{`a.yaml:11: error: pod "web": spec.containers[0].resources.limits[memory]: 512 is only 512 bytes: did you mean 512Mi?`}},
		"of a request":            {web("web", "resources:\n  requests:\n    memory: 1500m", ""), []string{`a.yaml:11: error: pod "web": spec.containers[0].resources.requests[memory]: 1500m is 1.5 bytes`}},
		"size limit":              {web("web", "", "volumes:\n- name: a\n  emptyDir:\n    sizeLimit: 100"), []string{`a.yaml:12: error: pod "web": spec.volumes[0].emptyDir.sizeLimit: 100 is only 100 bytes`}},
		"claim": {"apiVersion: v1\nkind: PersistentVolumeClaim\nmetadata: {name: a}\nspec:\n  accessModes: [ReadWriteOnce]\n  resources:\n    requests:\n      storage: 10m\n",
			[]string{`a.yaml:8: error: PersistentVolumeClaim "a": spec.resources.requests[storage]: 10m is 0.01 bytes`}},
		"cores":       {web("web", "resources: {limits: {cpu: 500}}", ""), []string{`a.yaml:9: warning: pod "web": spec.containers[0].resources.limits[cpu]: 500 means 500 CPUs: did you mean 500m?`}},
		"many cores":  {web("web", "resources: {limits: {cpu: 2000}}", ""), []string{`a.yaml:9: error: pod "web": spec.containers[0].resources.limits[cpu]: 2k means 2000 CPUs: did you mean 2000m?`}},
		"cores in Mi": {web("web", "resources: {limits: {cpu: 64Mi}}", ""), []string{`a.yaml:9: error: pod "web": spec.containers[0].resources.limits[cpu]: 64Mi is a number of CPUs: did you mean memory?`}},
		"no limit":    {web("web", "resources: {limits: {memory: 0}}", ""), nil},
		"path": {web("web", "volumeMounts: [{name: a, mountPath: /a}]", "volumes:\n- name: a\n  hostPath:\n    path: /srv/{{ site }}"),
			[]string{`a.yaml:13: warning: pod "web": spec.volumes[0].hostPath.path: "/srv/{{ site }}" looks like a template`}},
		"a template for the program": {web("web", "args: [\"--format={{.Name}}\", \"${HOME}\"]\nenv: [{name: A, value: \"{{ a }}\"}]", ""), nil},
		"missing": {web("web", "envFrom: [{configMapRef: {name: setings}}]", "") + configMap,
			[]string{`a.yaml:9: warning: pod "web": spec.containers[0].envFrom[0].configMapRef.name: ConfigMap "setings" is not in the checked files; the pod waits until it exists: did you mean "settings"?`}},
		"present":   {web("web", "envFrom: [{configMapRef: {name: settings}}]", "") + configMap, nil},
		"namespace": {strings.Replace(web("web", "envFrom: [{configMapRef: {name: settings}}]", ""), "name: web", "name: web\n  namespace: a", 1) + configMap, []string{"a.yaml:10: warning"}},
		"optional":  {web("web", "envFrom: [{configMapRef: {name: x, optional: true}}]", ""), nil},
		"key": {web("web", "env:\n- name: A\n  valueFrom:\n    configMapKeyRef: {name: settings, key: interva}", "") + configMap,
			[]string{`a.yaml:12: warning: pod "web": spec.containers[0].env[0].valueFrom.configMapKeyRef.key: ConfigMap "settings" has no key "interva", but interval`}},
		"secrets": {web("web", "", "imagePullSecrets: [{name: a}]\nvolumes:\n- {name: b, secret: {secretName: b}}\n- {name: c, persistentVolumeClaim: {claimName: c}}\n- {name: d, projected: {sources: [{secret: {name: d}}]}}"),
			[]string{`a.yaml:9: warning: pod "web": spec.imagePullSecrets[0].name: Secret "a"`, `a.yaml:11: warning: pod "web": spec.volumes[0].secret.secretName: Secret "b"`,
				`a.yaml:12: warning: pod "web": spec.volumes[1].persistentVolumeClaim.claimName: PersistentVolumeClaim "c"`, `a.yaml:13: warning: pod "web": spec.volumes[2].projected.sources[0].secret.name: Secret "d"`}},
		"ports of a pod": {web("web", "ports: [{containerPort: 80, hostPort: 80}]", "- name: b\n  image: b:1\n  ports:\n  - {containerPort: 1, hostPort: 80, hostIP: 127.0.0.1}"),
			[]string{`a.yaml:13: error: pod "web": spec.containers[1].ports[0].hostPort: host port 80/TCP is taken by container "web" of pod "web" in a.yaml:1`}},
		"init containers of two pods": {web("web", "", "initContainers: [{name: a, image: a:1, ports: [{containerPort: 1, hostPort: 80}]}]") + "---\n" + web("db", "", "initContainers: [{name: a, image: a:1, ports: [{containerPort: 1, hostPort: 80}]}]"), nil},
		"init containers":             {web("web", "", "initContainers:\n- {name: a, image: a:1, ports: [{containerPort: 1, hostPort: 80}]}\n- {name: b, image: a:1, ports: [{containerPort: 1, hostPort: 80}]}"), nil},
		"escapes":                     {web("\"\\e[2J\"", "", ""), []string{"a.yaml:4: error: pod \"�[2J\": metadata.name: "}},
	} {
		t.Run(name, func(t *testing.T) { compare(t, check(c.text), c.want...) })
	}
}

// TestFiles checks the findings that concern several files.
func TestFiles(t *testing.T) {
	port := func(name, more, spec string) string {
		return web(name, "ports:\n- {containerPort: 80, hostPort: 8080"+more+"}", spec)
	}
	files := func(texts ...string) (out []finding.File) {
		for i, text := range texts {
			out = append(out, finding.File{Name: string(rune('a'+i)) + ".yaml", Data: []byte(text)})
		}
		return out
	}
	for name, c := range map[string]struct {
		files []finding.File
		want  []string
	}{
		"same port":           {files(port("a", "", ""), port("b", "", "")), []string{`b.yaml:10: error: pod "b": spec.containers[0].ports[0].hostPort: host port 8080/TCP is taken by container "web" of pod "a" in a.yaml:1`}},
		"same address":        {files(port("a", ", hostIP: 0.0.0.0", ""), port("b", ", hostIP: 127.0.0.1", "")), []string{"b.yaml:10: error"}},
		"host network":        {files(port("a", "", ""), web("b", "ports: [{containerPort: 8080}]", "hostNetwork: true")), []string{"b.yaml:9: error"}},
		"protocols":           {files(port("a", ", protocol: UDP", ""), port("b", "", "")), nil},
		"addresses":           {files(port("a", ", hostIP: 127.0.0.2", ""), port("b", ", hostIP: 127.0.0.1", "")), nil},
		"same pod":            {files(web("a", "", ""), web("a", "", "")), []string{`b.yaml:1: error: Pod "a": is also in a.yaml:1, and only one of them can be used`}},
		"other file":          {files(web("a", "envFrom: [{configMapRef: {name: settings}}]", ""), configMap), nil},
		"broken file":         {files(web("a", "envFrom: [{configMapRef: {name: settings}}]", ""), configMap+"imutable: true\n"), []string{`b.yaml:6: error: imutable: unknown field: did you mean "immutable"?`}},
		"order":               {files(web("a", "", "x: 1\ny: 2"), web("b", "x: 1", "")), []string{"a.yaml:9", "a.yaml:10", "b.yaml:9"}},
		"configuration":       {files("apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\nmaxPodz: 1\n"), []string{`a.yaml:3: error: maxPodz: unknown field: did you mean "maxPods"?`}},
		"good configurations": {files("apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\nmaxPods: 20\n---\napiVersion: islet.dev/v1alpha1\nkind: EdgeConfiguration\n"), nil},
		"wrong value":         {files("---\napiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n\nmaxPods: -1\n"), []string{"a.yaml:5: error: maxPods: Invalid value: -1: "}},
		"no effect":           {files("apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\niptablesDropBit: 3\n"), []string{"a.yaml:3: warning: iptablesDropBit: has no effect: "}},
		"not a configuration": {files("apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\nmaxPods: {{ pods }}\n" + "---\n" + web("a", "", "")), []string{"a.yaml:"}},
	} {
		t.Run(name, func(t *testing.T) { compare(t, Rules{}.Check(c.files, nil), c.want...) })
	}
	r := Rules{}.Check(files(web("a", "", "")+configMap, "apiVersion: islet.dev/v1alpha1\nkind: EdgeConfiguration\n"), nil)
	if r.Files != 2 || r.Pods != 1 || r.Objects != 1 || r.Configurations != 1 || r.Findings == nil {
		t.Errorf("%+v", r)
	}
}

// TestNode checks the findings of a dry run.
func TestNode(t *testing.T) {
	ports := []v1.ContainerPort{{ContainerPort: 80, HostPort: 80}}
	other := v1.Pod{Spec: v1.PodSpec{Containers: []v1.Container{{Ports: ports}}}}
	other.Namespace, other.Name = "default", "other"
	ended := *other.DeepCopy()
	ended.Name, ended.Status.Phase = "ended", v1.PodSucceeded
	ended.Spec.Containers[0].Ports[0].HostPort = 81
	node := &finding.Node{
		Pods:    []v1.Pod{other, ended},
		Objects: []api.Object{{Kind: "ConfigMap", Namespace: "default", Name: "settings", Keys: map[string]int{"a": 1}}, {Kind: "Secret", Namespace: "default", Name: "gone", Gone: true}},
		Images:  []api.Image{{ID: "sha256:1", Tags: []string{"example.com/web:1"}}},
	}
	for name, c := range map[string]struct {
		text string
		want []string
	}{
		"known":               {web("web", "imagePullPolicy: Never\nenvFrom: [{configMapRef: {name: settings}}]", ""), nil},
		"key":                 {web("web", "env: [{name: A, valueFrom: {configMapKeyRef: {name: settings, key: b}}}]", ""), []string{`a.yaml:9: warning: pod "web": spec.containers[0].env[0].valueFrom.configMapKeyRef.key: ConfigMap "settings" has no key "b", but a`}},
		"gone":                {web("web", "envFrom: [{secretRef: {name: gone}}]", ""), []string{`a.yaml:9: warning: pod "web": spec.containers[0].envFrom[0].secretRef.name: Secret "gone" is neither in the files nor among`}},
		"image":               {strings.Replace(web("web", "", ""), "web:1", "web:2", 1), []string{`a.yaml:8: warning: pod "web": spec.containers[0].image: "example.com/web:2" is not on this node: it is pulled when the pod starts`}},
		"local image":         {strings.Replace(web("web", "", ""), "example.com/web:1", "localhost/web:1", 1), []string{`a.yaml:8: warning: pod "web": spec.containers[0].image: "localhost/web:1" is not on this node: it is pulled when the pod starts, which fails unless a registry runs here: import it`}},
		"never":               {strings.Replace(web("web", "imagePullPolicy: Never", ""), "web:1", "web:2", 1), []string{`a.yaml:8: warning: pod "web": spec.containers[0].image: "example.com/web:2" is never pulled`}},
		"port":                {web("web", "ports: [{containerPort: 80, hostPort: 80}]", ""), []string{`a.yaml:9: error: pod "web": spec.containers[0].ports[0].hostPort: host port 80/TCP is taken by pod default/other of this node`}},
		"of an ended pod":     {web("web", "ports: [{containerPort: 80, hostPort: 81}]", ""), nil},
		"of the replaced pod": {web("other", "ports: [{containerPort: 80, hostPort: 80}]", ""), nil},
	} {
		t.Run(name, func(t *testing.T) {
			compare(t, Rules{}.Check([]finding.File{{Name: "a.yaml", Data: []byte(c.text)}}, node), c.want...)
		})
	}
}

// TestUnsupported checks that a finding of the caller's own rules is reported with the line of its field.
func TestUnsupported(t *testing.T) {
	rules := Rules{Unsupported: func(*v1.Pod, config.RealTime) []finding.Finding {
		return []finding.Finding{{Severity: finding.Error, Field: "spec.os", Message: "is another system"},
			{Severity: finding.Warning, Field: "spec.containers[0].image", Message: "acts not"}}
	}}
	r := rules.Check([]finding.File{{Name: "a.yaml", Data: []byte(web("web", "", "os: {name: windows}"))}}, nil)
	compare(t, r, `a.yaml:8: warning: pod "web": spec.containers[0].image: acts not`, `a.yaml:9: error: pod "web": spec.os: is another system`)
}

// TestReferences checks that the same objects are visited as by podspec.VisitReferences, which decides what a pod waits for.
func TestReferences(t *testing.T) {
	key := &v1.SecretKeySelector{LocalObjectReference: v1.LocalObjectReference{Name: "g"}, Key: "k"}
	local := func(name string) v1.LocalObjectReference { return v1.LocalObjectReference{Name: name} }
	spec := v1.PodSpec{
		ImagePullSecrets: []v1.LocalObjectReference{local("a")},
		InitContainers:   []v1.Container{{EnvFrom: []v1.EnvFromSource{{ConfigMapRef: &v1.ConfigMapEnvSource{LocalObjectReference: local("b")}}}}},
		Containers: []v1.Container{{EnvFrom: []v1.EnvFromSource{{SecretRef: &v1.SecretEnvSource{LocalObjectReference: local("c")}}}, Env: []v1.EnvVar{{},
			{ValueFrom: &v1.EnvVarSource{SecretKeyRef: key}}, {ValueFrom: &v1.EnvVarSource{ConfigMapKeyRef: &v1.ConfigMapKeySelector{LocalObjectReference: local("h"), Key: "k"}}}}}},
		Volumes: []v1.Volume{{VolumeSource: v1.VolumeSource{ConfigMap: &v1.ConfigMapVolumeSource{LocalObjectReference: local("d"), Items: []v1.KeyToPath{{Key: "x"}}}}},
			{VolumeSource: v1.VolumeSource{Secret: &v1.SecretVolumeSource{SecretName: "e"}}},
			{VolumeSource: v1.VolumeSource{PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{ClaimName: "f"}}},
			{VolumeSource: v1.VolumeSource{Projected: &v1.ProjectedVolumeSource{Sources: []v1.VolumeProjection{
				{ConfigMap: &v1.ConfigMapProjection{LocalObjectReference: local("i")}}, {Secret: &v1.SecretProjection{LocalObjectReference: local("j")}}}}}}},
	}
	want, got := map[string]bool{}, map[string]bool{}
	podspec.VisitReferences(&spec, func(kind, name string) { want[kind+"/"+name] = true })
	(&pod{Pod: &v1.Pod{Spec: spec}}).eachReference(func(_ *field.Path, kind, name, _ string, _ bool) { got[kind+"/"+name] = true })
	if len(want) != 10 || !maps.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

// TestBounds checks that the number and the length of findings are limited.
func TestBounds(t *testing.T) {
	var files []finding.File
	for i := range 100 {
		files = append(files, finding.File{Name: fmt.Sprint(i), Data: []byte(web("web", strings.Repeat("x", 900)+": 1\n"+bad(50), ""))})
	}
	r := Rules{}.Check(files, nil)
	if len(r.Findings) != maxFindings || r.Omitted == 0 || r.Errors != maxFindings+r.Omitted {
		t.Errorf("%d findings, %d omitted, %d errors", len(r.Findings), r.Omitted, r.Errors)
	}
	for _, f := range r.Findings {
		if n := len(f.Object) + len(f.Field) + len(f.Message); n > 3*maxText+50 {
			t.Fatalf("%d bytes", n)
		}
	}
}

func bad(n int) (text string) {
	for i := range n {
		text += fmt.Sprintf("y%d: 1\n", i)
	}
	return text
}

// FuzzCheck checks that no input causes a panic, and that each finding is printable, has a message, and has a line of the file.
func FuzzCheck(f *testing.F) {
	for _, seed := range []string{
		web("web", "prots: []", ""), web("a", "ports: [{containerPort: 1, hostPort: 1}]", "hostNetwork: true") + configMap, "services: {a: {}}", "{{ a }}: b\n", "a:\n\tb",
		"apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\nmaxPodz: 1\n", "apiVersion: islet.dev/v1alpha1\nkind: EdgeConfiguration\n",
		web("a", "resources: {limits: {memory: 512m, cpu: 1Ei}}", "volumes: [{name: a, hostPath: {path: <X>}}]"), "kind: List\napiVersion: v1\nitems: [{kind: Pod}]\n",
		"{\"kind\":\"Secret\",\"apiVersion\":\"v1\",\"metadata\":{\"name\":\"a\"}}", "\x00", "---\n---\n", "",
	} {
		f.Add([]byte(seed), []byte(seed))
	}
	node := &finding.Node{Objects: []api.Object{{Kind: "ConfigMap", Namespace: "default", Name: "settings"}}}
	f.Fuzz(func(t *testing.T, a, b []byte) {
		files := []finding.File{{Name: "a", Data: a}, {Name: "b", Data: b}}
		for _, n := range []*finding.Node{nil, node} {
			r := Rules{}.Check(files, n)
			for _, e := range r.Findings {
				data := map[string][]byte{"a": a, "b": b}[e.File]
				if e.Message == "" || e.Line < 0 || e.Line > strings.Count(string(data), "\n")+1 {
					t.Fatalf("%+v", e)
				}
				if strings.ContainsFunc(e.Object+e.Field+e.Message, func(r rune) bool { return !unicode.IsPrint(r) }) {
					t.Fatalf("%+v", e)
				}
			}
		}
	})
}
