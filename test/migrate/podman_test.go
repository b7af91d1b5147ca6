package migrate

import (
	"slices"
	"strings"
	"testing"

	"github.com/islet-edge/islet/test/system"
)

// web is the YAML of podman kube play. Its page is at port 8080, and each request adds a line to a file in a volume.
const web = `apiVersion: v1
kind: Pod
metadata:
  name: web
spec:
  terminationGracePeriodSeconds: 2
  containers:
  - name: page
    image: localhost/podtool:test
    imagePullPolicy: Never
    args: [serve, ":80", /data/requests]
    ports: [{containerPort: 80, hostPort: 8080}]
    volumeMounts: [{name: data, mountPath: /data}, {name: site, mountPath: /site}]
    envFrom: [{configMapRef: {name: web}}]
  volumes:
  - {name: data, persistentVolumeClaim: {claimName: pages}}
  - {name: site, hostPath: {path: /srv/web, type: Directory}}
`

// webMap is the ConfigMap of the pod web.
const webMap = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: web}\ndata: {GREETING: hello}\n"

// mirror is a registries.conf of podman. The registry shop.example does not exist, but its mirror does.
const mirror = `[[registry]]
location = "shop.example"
[[registry.mirror]]
location = "127.0.0.1:5000/hub"
insecure = true
`

// A host is a machine with podman whose units are written in one of the ways that podman has had.
type host struct {
	release string
	pods    []string // the pods under islet
	loose   []string // containers that no unit starts
	data    string   // podman's volume of the container db; its process writes to the file starts
	claim   string   // the claim of this volume
	// The host starts its containers with these commands.
	setUp string
}

// files returns a command that writes a file.
func file(path, content string) string {
	return "mkdir -p $(dirname " + path + ") && cat >" + path + " <<'END'\n" + content + "END\n"
}

// debian12 has podman 4.3, which knows no quadlets. Its containers run by an instance of podman-kube@.service, and by units of podman
// generate systemd. The container loose has an image with the tag latest, and no unit.
var debian12 = host{release: "bookworm", pods: []string{"web-edge", "db-pod-edge", "two-edge", "loose-pod-edge", "fresh-pod-edge"},
	loose: []string{"loose"}, data: "my_data", claim: "my-data",
	setUp: file("/root/web/web.yaml", webMap+"---\n"+web) + `
systemctl enable --now podman-kube@$(systemd-escape /root/web/web.yaml).service
cd /etc/systemd/system
podman create --name db -v my_data:/data -v /srv/web:/site:ro localhost/podtool:test live /data/starts db
podman generate systemd --name --files db
podman pod create --name two -p 8083:83
podman create --name a --pod two localhost/podtool:test serve :83
podman create --name b --pod two localhost/podtool:test count 1s
podman generate systemd --name --files two
podman create --name fresh localhost/podtool:test count 1s
podman generate systemd --new --name --files fresh
podman rm fresh
systemctl daemon-reload
systemctl enable --now container-db pod-two container-fresh
podman tag localhost/podtool:test localhost/loose
podman run -d --name loose --restart always --memory 50m localhost/loose count 1s
podman commit loose
`}

// debian13 has podman 5.4 with quadlets of most kinds.
var debian13 = host{release: "trixie", pods: []string{"web-edge", "systemd-db-pod-edge", "systemd-two-edge"}, data: "systemd-db", claim: "systemd-db",
	setUp: file("/etc/containers/systemd/web.yaml", web) + file("/etc/web/map.yaml", webMap) +
		file("/etc/containers/systemd/web.kube", "[Kube]\nYaml=web.yaml\nConfigMap=/etc/web/map.yaml\n[Install]\nWantedBy=multi-user.target\n") +
		file("/etc/containers/systemd/db.volume", "[Volume]\n") +
		file("/etc/containers/systemd/db.container", `[Container]
Image=localhost/podtool:test
Volume=db.volume:/data
Volume=/srv/web:/site:ro
Exec=live /data/starts db
HealthCmd=/podtool env
[Service]
Restart=always
[Install]
WantedBy=multi-user.target
`) + file("/etc/containers/systemd/two.pod", "[Pod]\nPublishPort=8083:83\n[Install]\nWantedBy=multi-user.target\n") +
		file("/etc/containers/systemd/a.container", "[Container]\nImage=localhost/podtool:test\nPod=two.pod\nExec=serve :83\n") +
		file("/etc/containers/systemd/b.container", "[Container]\nImage=localhost/podtool:test\nPod=two.pod\nExec=count 1s\n") +
		"systemctl daemon-reload\nsystemctl start web db two-pod\n"}

// boot returns the host with running containers, after one request to the page, and the registry of its mirror.
func (h *host) boot(t *testing.T) (*system.System, *registry) {
	t.Helper()
	s := boot(t, h.release, nil)
	r := serveRegistry(t, s, 5000, "/v2/hub/")
	s.Run("set -e; export PODMAN_IGNORE_CGROUPSV1_WARNING=1; mkdir -p /srv/web; podman load -i /payload/podtool.tar\n" +
		file("/etc/containers/registries.conf.d/shop.conf", mirror) + h.setUp)
	s.Run("podman pull shop.example/tools:1")
	if !r.has("tools:1") {
		t.Error("podman did not use the mirror")
	}
	if got := request(s, 8080); got != "web" {
		t.Errorf("podman's page is %q", got)
	}
	s.Await("grep -q starts " + h.volume() + "/starts")
	return s, r
}

func (h *host) volume() string { return "/var/lib/containers/storage/volumes/" + h.data + "/_data" }

// underIslet checks that the pods run under islet with the data of podman, and that podman runs none.
func (h *host) underIslet(t *testing.T, s *system.System, r *registry) {
	t.Helper()
	waitForPods(s, h.pods...)
	if got := request(s, 8080); got != "web-edge" {
		t.Errorf("islet's page is %q", got)
	}
	if got := request(s, 8083); !strings.Contains(got, "two") {
		t.Errorf("islet's second page is %q", got)
	}
	expect(t, s, "/var/lib/islet/claims/default/pages/requests", "/ by \n/ by \n")
	expect(t, s, "/var/lib/islet/claims/default/"+h.claim+"/starts", "db starts\ndb ends\ndb starts\n")
	if out := s.Run("podman ps -q 2>/dev/null"); out != "" {
		t.Errorf("podman still runs %s", out)
	}
	out := s.Run("/usr/local/bin/islet images ls")
	if strings.Contains(out, "podman-pause") || !strings.Contains(out, "shop.example/tools:1") {
		t.Errorf("the images are\n%s", out)
	}
	// islet pulls an image that podman does not have from the mirror.
	s.Run(file("/etc/kubernetes/manifests/new.yaml", tools("2")))
	waitForPods(s, append([]string{"tools2-edge"}, h.pods...)...)
	if !r.has("tools:2") {
		t.Error("islet did not use the mirror")
	}
}

// asBefore checks that podman runs its containers again, with the data that islet's pods have written, and that islet is gone.
func (h *host) asBefore(t *testing.T, s *system.System) {
	t.Helper()
	if got := request(s, 8080); got != "web" {
		t.Errorf("podman's page is %q after the way back", got)
	}
	expect(t, s, "/var/lib/containers/storage/volumes/pages/_data/requests", strings.Repeat("/ by \n", 3))
	s.Await("[ \"$(cat " + h.volume() + "/starts)\" = '" + strings.Repeat("db starts\ndb ends\n", 2) + "db starts' ]")
	s.Run("! find /usr/local /etc/systemd/system -name '*islet*' | grep . && ! ps -eo comm | grep islet && ! test -e /run/islet/islet.sock")
	if out := s.Run("podman ps --format '{{.Names}}' 2>/dev/null"); strings.Count(out, "loose") != slices.Index(h.loose, "loose")+1 {
		t.Errorf("podman runs\n%s", out)
	}
}

// correct replaces the name of a volume in the manifests, because a claim cannot have this name. The report says so.
func (h *host) correct(s *system.System) {
	s.Run("sed -i 's/" + h.data + "/" + h.claim + "/' /root/for-islet/manifests/*.yaml")
}

// TestPodman follows the report of islet doctor --migrate to islet and back.
func TestPodman(t *testing.T) {
	for _, h := range []host{debian12, debian13} {
		t.Run(h.release, func(t *testing.T) {
			s, r := h.boot(t)
			before := reportOf(s, t)
			steps := commandsOf(before.Steps)
			for i := range steps {
				if slices.Contains(steps[i], "podman ps --pod") { // the containers of this list that no unit starts
					for _, name := range h.loose {
						steps[i] = append(steps[i], "podman generate kube "+name+" >/root/for-islet/manifests/"+name+".yaml")
					}
				}
			}
			at := slices.IndexFunc(steps, func(commands []string) bool { return strings.Contains(strings.Join(commands, ""), "./islet check") })
			follow(s, steps[:at])
			h.correct(s)
			follow(s, steps[at:])
			h.underIslet(t, s, r)
			follow(s, commandsOf(before.Back))
			h.asBefore(t, s)
		})
	}
}

// TestPodmanPage follows docs/from-podman.md to islet and back, with the quadlets of Debian 13.
func TestPodmanPage(t *testing.T) {
	h := debian13
	s, r := h.boot(t)
	follow(s, [][]string{{"./islet doctor --migrate --write=/root/for-islet"}})
	edit := func(block string) (commands []string) {
		for example, all := range map[string][]string{"NAME": {"systemd-db", "systemd-two"}, "VOLUME": {"pages", "systemd-db"},
			"web": {"web web.kube", "db db.container", "two-pod two.pod", "a a.container", "b b.container"}} {
			for _, name := range all {
				service, file, isQuadlet := strings.Cut(name, " ")
				if isQuadlet && strings.Contains(block, "web.kube.off") {
					r := strings.NewReplacer("web.kube", file, "stop web", "stop "+service, "start web", "start "+service)
					commands = append(commands, r.Replace(block))
				} else if !isQuadlet && strings.Contains(block, example) {
					commands = append(commands, strings.ReplaceAll(block, example, name))
				}
			}
		}
		if len(commands) == 0 {
			commands = append(commands, block)
		}
		return commands
	}
	follow(s, page(t, "from-podman.md", "Move a machine with podman", edit))
	h.underIslet(t, s, r)
	follow(s, page(t, "from-podman.md", "The way back", edit))
	h.asBefore(t, s)
}
