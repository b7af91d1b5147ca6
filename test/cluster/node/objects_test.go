package node

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/islet-edge/islet/test/cluster"
	"github.com/islet-edge/islet/test/machine"
	authentication "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// objects returns the objects that the pods of dressed() use.
func objects(ns string) string {
	return strings.ReplaceAll(`apiVersion: v1
kind: ConfigMap
metadata: {name: conf, namespace: NS}
data: {colour: green, size: big}
---
apiVersion: v1
kind: Secret
metadata: {name: key, namespace: NS}
stringData: {word: sesame}
---
apiVersion: v1
kind: Secret
metadata: {name: fixed, namespace: NS}
immutable: true
stringData: {word: granite}
---
apiVersion: v1
kind: Service
metadata: {name: shop, namespace: NS}
spec: {ports: [{port: 80}]}
---
`, "NS", ns)
}

// dressed returns a pod with every kind of API object in its volumes and environment. The tests check the content of these objects with
// seen().
func dressed(ns, name string) string {
	return pod(ns, name, `volumes:
- {name: conf, configMap: {name: conf, defaultMode: 0440, items: [{key: colour, path: paint/colour}]}}
- {name: key, secret: {secretName: key}}
- {name: fixed, secret: {secretName: fixed}}
- {name: none, configMap: {name: none, optional: true}}
- name: all
  projected:
    sources:
    - serviceAccountToken: {path: token, audience: shop, expirationSeconds: 3600}
    - downwardAPI: {items: [{path: name, fieldRef: {fieldPath: metadata.name}}]}
    - secret: {name: key, items: [{key: word, path: secret/word}]}`, `volumeMounts:
- {name: conf, mountPath: /conf}
- {name: key, mountPath: /key}
- {name: fixed, mountPath: /fixed}
- {name: none, mountPath: /none}
- {name: all, mountPath: /all}
envFrom: [{configMapRef: {name: conf}, prefix: CONF_}]
env:
- {name: WORD, valueFrom: {secretKeyRef: {name: key, key: word}}}
- {name: WHERE, valueFrom: {fieldRef: {fieldPath: spec.nodeName}}}
- {name: LIMIT, valueFrom: {resourceFieldRef: {resource: limits.memory, divisor: 1Mi}}}
resources: {limits: {memory: 64Mi}}`, "sleep")
}

// seen checks the files and the environment in the container of a dressed pod, and returns its two tokens.
func seen(t *testing.T, c *cluster.Cluster, n *cluster.Node, ns, name string) (own, shop string) {
	t.Helper()
	service, err := c.Admin().CoreV1().Services(ns).Get(t.Context(), "shop", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	cat := func(file string) string { return inside(n, ns, name, "cat", file) }
	for file, want := range map[string]string{
		"/conf/paint/colour": "green", "/key/word": "sesame", "/fixed/word": "granite", "/all/name": name, "/all/secret/word": "sesame",
		"/var/run/secrets/kubernetes.io/serviceaccount/namespace": ns,
	} {
		if got := cat(file); got != want {
			t.Errorf("%s: %s is %q, want %q", name, file, got, want)
		}
	}
	env := "\n" + inside(n, ns, name, "env")
	for _, want := range []string{"CONF_colour=green", "CONF_size=big", "WORD=sesame", "WHERE=" + n.Name, "LIMIT=64",
		"SHOP_SERVICE_HOST=" + service.Spec.ClusterIP, "KUBERNETES_SERVICE_HOST=10.96.0.1"} {
		if !strings.Contains(env, "\n"+want+"\n") {
			t.Errorf("%s: the environment lacks %s", name, want)
		}
	}
	if ca := cat("/var/run/secrets/kubernetes.io/serviceaccount/ca.crt"); !strings.HasPrefix(ca, "-----BEGIN CERTIFICATE") {
		t.Errorf("%s: ca.crt is %.40q", name, ca)
	}
	return cat("/var/run/secrets/kubernetes.io/serviceaccount/token"), cat("/all/token")
}

// valid checks that the API server accepts a token of a pod for an audience.
func valid(t *testing.T, c *cluster.Cluster, token, ns, name string, audience ...string) {
	t.Helper()
	r, err := c.Admin().AuthenticationV1().TokenReviews().Create(t.Context(), &authentication.TokenReview{
		Spec: authentication.TokenReviewSpec{Token: token, Audiences: audience},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	bound := r.Status.User.Extra["authentication.kubernetes.io/pod-name"]
	if !r.Status.Authenticated || r.Status.User.Username != "system:serviceaccount:"+ns+":default" || len(bound) != 1 || bound[0] != name {
		t.Errorf("a token of %s is reviewed as %+v", name, r.Status)
	}
}

// TestObjects checks that pods get ConfigMaps, Secrets, tokens and Services. A change of a ConfigMap must reach the volume.
func TestObjects(t *testing.T) {
	c, n, ns := join(t)
	c.Apply(t, objects(ns)+dressed(ns, "dressed"))
	c.AwaitReady(t, ns, "dressed")
	own, shop := seen(t, c, n, ns, "dressed")
	valid(t, c, own, ns, "dressed")
	valid(t, c, shop, ns, "dressed", "shop")

	c.Apply(t, strings.ReplaceAll(objects(ns), "green", "blue"))
	n.Await("the change of the ConfigMap", func() bool {
		return inside(n, ns, "dressed", "cat", "/conf/paint/colour") == "blue"
	})

	// A pod that is created before its ConfigMap waits for it.
	c.Apply(t, pod(ns, "early", "", "envFrom: [{configMapRef: {name: late}}]", "sleep"))
	c.AwaitPod(t, ns, "early", "to report the missing object", func(p *corev1.Pod) bool {
		return len(p.Status.ContainerStatuses) == 1 && p.Status.ContainerStatuses[0].State.Waiting != nil &&
			*p.Status.ContainerStatuses[0].State.Waiting == corev1.ContainerStateWaiting{Reason: "CreateContainerConfigError", Message: `configmap "late" not found`}
	})
	c.Kubectl(t, "-n", ns, "create", "configmap", "late", "--from-literal=K=v")
	c.AwaitReady(t, ns, "early")
}

// TestManyWantOneObject checks that few requests are sent for objects that several pods share.
func TestManyWantOneObject(t *testing.T) {
	c, proxy, _, ns := joinProxy(t)
	var all strings.Builder
	var names []string
	for _, i := range "abcdefgh" {
		names = append(names, string(i))
		all.WriteString(dressed(ns, string(i)))
	}
	c.Apply(t, objects(ns)+all.String())
	c.AwaitReady(t, ns, names...)
	by, _ := proxy.Requests()
	for what, times := range by {
		// The API server may reject the first request, because the API server does not yet know that the pod runs on this node.
		shared := strings.Contains(what, "/configmaps?") || strings.Contains(what, "/secrets?") || strings.Contains(what, "/services")
		if shared && times > 2 {
			t.Errorf("%d requests %s", times, what)
		}
	}
	watches := "WATCH /api/v1/namespaces/" + ns
	if by[watches+"/configmaps?metadata.name=conf"] != 1 || by[watches+"/secrets?metadata.name=fixed"] != 0 {
		t.Errorf("requests were %v", by)
	}
}

// TestPullSecret checks that an image of a private registry is pulled with the pod's image pull secret, or with a credential provider that
// gets a token of the pod's service account. Pods without these credentials must not get the image. After a reboot without a network, the
// pods with the credentials must run again.
func TestPullSecret(t *testing.T) {
	t.Parallel()
	c := start(t)
	r := c.Registry(t)
	n := c.Node(t, "")
	n.Write("certs.d/"+r.Addr+"/hosts.toml", r.HostsFile(n.Disk+"/ca.crt"))
	n.Write("edge.yaml", fmt.Sprintf(
		"apiVersion: islet.dev/v1alpha1\nkind: EdgeConfiguration\ncniConfDir: %[1]s/cni\nregistryConfigDir: %[1]s/certs.d\n", n.Disk))
	n.Write("plugins.yaml", fmt.Sprintf(`kind: CredentialProviderConfig
apiVersion: kubelet.config.k8s.io/v1
providers:
- name: tester
  matchImages: ["*.*.*.*:%s/private"]
  defaultCacheDuration: 0s
  apiVersion: credentialprovider.kubelet.k8s.io/v1
  env: [{name: ANSWER, value: '{"username":"%s","password":"%s"}'}]
  tokenAttributes:
    serviceAccountTokenAudience: registry
    cacheType: ServiceAccount
    requireServiceAccount: true
    requiredServiceAccountAnnotationKeys: [example.com/role]
`, r.Addr[strings.LastIndex(r.Addr, ":")+1:], r.User, r.Password))
	n.Write("bin/tester", `#!/bin/sh
request=$(cat)
echo "$request" >> `+n.Disk+`/requests
case "$request" in *'"serviceAccountToken":"ey'*'"example.com/role":"puller"'*) ;; *) echo "no role" >&2; exit 1 ;; esac
echo '{"kind":"CredentialProviderResponse","apiVersion":"credentialprovider.kubelet.k8s.io/v1","cacheKeyType":"Registry","auth":{"`+
		r.Addr+`":'"$ANSWER"'}}'
`)
	if err := os.Chmod(n.Disk+"/bin/tester", 0o755); err != nil {
		t.Fatal(err)
	}
	plugins := []string{"--image-credential-provider-config=" + n.Disk + "/plugins.yaml", "--image-credential-provider-bin-dir=" + n.Disk + "/bin"}
	n.Join(plugins...)
	ns := c.Namespace(t)
	private := func(name, spec string) string {
		p := strings.Replace(pod(ns, name, spec, "", "sleep"), machine.Image, r.Image, 1)
		return strings.Replace(p, "imagePullPolicy: Never", "imagePullPolicy: IfNotPresent", 1)
	}
	refused := func(name string) {
		t.Helper()
		c.AwaitPod(t, ns, name, "to be refused by the registry", func(p *corev1.Pod) bool {
			s := p.Status.ContainerStatuses
			return len(s) == 1 && s[0].State.Waiting != nil &&
				(s[0].State.Waiting.Reason == "ErrImagePull" || s[0].State.Waiting.Reason == "ImagePullBackOff")
		})
	}
	for name, role := range map[string]string{"puller": "puller", "other": "other"} {
		c.Kubectl(t, "-n", ns, "create", "serviceaccount", name)
		c.Kubectl(t, "-n", ns, "annotate", "serviceaccount", name, "example.com/role="+role)
	}
	c.Apply(t, strings.ReplaceAll(`apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: NAME}
rules: [{apiGroups: [""], resources: [registry], verbs: [request-serviceaccounts-token-audience]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: NAME}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: NAME}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: Group, name: "system:nodes"}]
`, "NAME", "pulls-"+ns))
	c.Apply(t, private("anonymous", ""))
	refused("anonymous")
	c.Kubectl(t, "-n", ns, "create", "secret", "docker-registry", "registry", "--docker-server="+r.Addr, "--docker-username="+r.User,
		"--docker-password="+r.Password)
	c.Apply(t, private("known", "imagePullSecrets: [{name: registry}]"))
	known := c.AwaitReady(t, ns, "known")["known"]
	if id := known.Status.ContainerStatuses[0].ImageID; !strings.HasPrefix(id, r.Addr+"/private/podtool@sha256:") {
		t.Errorf("the image ID is %q", id)
	}
	if b, err := os.ReadFile(n.Disk + "/requests"); err == nil {
		t.Errorf("the plugin ran for pods without the required annotation: %s", b)
	}
	c.Apply(t, private("plugged", "serviceAccountName: puller"))
	c.AwaitReady(t, ns, "plugged")
	c.Apply(t, private("stranger", "serviceAccountName: other"))
	refused("stranger")
	describes(t, c, n, []string{"credential provider tester: exit status 1: no role"}, "-n", ns, "pod", "stranger")
	c.Kubectl(t, "-n", ns, "delete", "pod", "anonymous", "stranger")
	n.WaitReady("known", "plugged")
	requests, err := os.ReadFile(n.Disk + "/requests")
	if err != nil {
		t.Error(err)
	}

	n.Cut(t)
	n.Reboot()
	n.Start(plugins...)
	n.WaitReady("known", "plugged")
	if again, err := os.ReadFile(n.Disk + "/requests"); err != nil || len(again) != len(requests) {
		t.Error("the plugin ran without a network", err)
	}
}
