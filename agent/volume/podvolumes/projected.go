package podvolumes

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/islet-edge/islet/internal/podspec"
)

const (
	defaultMode = 0o644
	privateMode = 0o600 // mode of a file that only one user or group may read
)

// contentKinds returns the kinds of volumes whose files contain data of API objects or of the pod itself.
// https://kubernetes.io/docs/concepts/storage/projected-volumes/
func contentKinds(s fileSources, m *tmpfsMounter) []Kind {
	return []Kind{
		&content{
			plugin: "kubernetes.io/configmap", servesVolume: func(v *v1.Volume) bool { return v.ConfigMap != nil },
			listFiles: func(pod *v1.Pod, vol *v1.Volume) (files, error) {
				c := vol.ConfigMap
				return s.configMapFiles(pod, c.Name, c.Items, defaults{c.DefaultMode, c.DefaultUser}, c.Optional)
			},
		},
		&content{
			plugin: "kubernetes.io/secret", servesVolume: func(v *v1.Volume) bool { return v.Secret != nil }, memory: m,
			listFiles: func(pod *v1.Pod, vol *v1.Volume) (files, error) {
				c := vol.Secret
				return s.secretFiles(pod, c.SecretName, c.Items, defaults{c.DefaultMode, c.DefaultUser}, c.Optional)
			},
		},
		&content{
			plugin: "kubernetes.io/downward-api", servesVolume: func(v *v1.Volume) bool { return v.DownwardAPI != nil }, memory: m,
			listFiles: func(pod *v1.Pod, vol *v1.Volume) (files, error) {
				d := vol.DownwardAPI
				return s.downwardFiles(pod, d.Items, defaults{d.DefaultMode, d.DefaultUser})
			},
		},
		&content{
			plugin: "kubernetes.io/projected", servesVolume: func(v *v1.Volume) bool { return v.Projected != nil }, memory: m,
			listFiles: func(pod *v1.Pod, vol *v1.Volume) (files, error) { return s.projectedFiles(pod, vol) },
		},
	}
}

// fileSources returns the files that a volume's sources describe.
type fileSources struct {
	objects Objects
	fields  Fields
	owners  bool // the users of files have an effect
}

// defaults contains a volume's mode and user for files that do not set their own.
type defaults struct {
	mode *int32
	user *int64
}

// ownerOf returns the user who owns a file, or nil for root (KEP-5936).
func (s fileSources) ownerOf(own *int64, volume defaults) *int64 {
	if !s.owners {
		return nil
	}
	return cmp.Or(own, volume.user)
}

// newFile returns a file with its mode and owner. If the parameter mode or user is nil, the default of the volume
// applies.
func (s fileSources) newFile(data []byte, mode *int32, user *int64, volume defaults) file {
	f := file{data: data, mode: modeOf(mode, volume.mode)}
	if u := s.ownerOf(user, volume); u != nil {
		f.uid = int(*u)
	}
	return f
}

// projectedFiles returns the files of all sources. If several sources fail, the error contains all their errors.
func (s fileSources) projectedFiles(pod *v1.Pod, vol *v1.Volume) (files, error) {
	all, p := files{}, vol.Projected
	var errs []error
	for i := range p.Sources {
		var f files
		var err error
		if c := p.Sources[i].PodCertificate; c != nil {
			f, err = s.certificateFiles(pod, vol.Name, i, c, defaults{p.DefaultMode, p.DefaultUser})
		} else {
			f, err = s.sourceFiles(pod, &p.Sources[i], defaults{p.DefaultMode, p.DefaultUser})
		}
		maps.Copy(all, f)
		errs = append(errs, err)
	}
	return all, errors.Join(errs...)
}

func (s fileSources) sourceFiles(pod *v1.Pod, p *v1.VolumeProjection, volume defaults) (files, error) {
	switch {
	case p.ConfigMap != nil:
		return s.configMapFiles(pod, p.ConfigMap.Name, p.ConfigMap.Items, volume, p.ConfigMap.Optional)
	case p.Secret != nil:
		return s.secretFiles(pod, p.Secret.Name, p.Secret.Items, volume, p.Secret.Optional)
	case p.DownwardAPI != nil:
		return s.downwardFiles(pod, p.DownwardAPI.Items, volume)
	case p.ServiceAccountToken != nil:
		return s.tokenFile(pod, p.ServiceAccountToken, volume)
	case p.ClusterTrustBundle != nil:
		return s.trustBundleFile(pod, p.ClusterTrustBundle, volume)
	}
	return nil, errors.New("the projected source is of a kind that this node does not support")
}

// configMapFiles returns the files of a ConfigMap. If an optional ConfigMap was deleted, it returns no files, as
// in a kubelet. If a required ConfigMap was deleted, it returns the files of the last copy, so that the pod's
// containers can restart.
//
// https://kubernetes.io/docs/concepts/storage/volumes/#configmap
func (s fileSources) configMapFiles(pod *v1.Pod, name string, items []v1.KeyToPath, volume defaults, optional *bool) (files, error) {
	m, err := s.objects.ConfigMap(pod, name)
	if optionalMissing(err, optional) || podspec.IsTrue(optional) && s.objects.Deleted(pod, "ConfigMap", name) {
		return files{}, nil
	} else if err != nil {
		return nil, err
	}
	data := make(map[string][]byte, len(m.Data)+len(m.BinaryData))
	for k, v := range m.Data {
		data[k] = []byte(v)
	}
	maps.Copy(data, m.BinaryData)
	return s.selectKeys(data, items, volume, podspec.IsTrue(optional), "ConfigMap "+pod.Namespace+"/"+name)
}

func (s fileSources) secretFiles(pod *v1.Pod, name string, items []v1.KeyToPath, volume defaults, optional *bool) (files, error) {
	m, err := s.objects.Secret(pod, name)
	if optionalMissing(err, optional) || podspec.IsTrue(optional) && s.objects.Deleted(pod, "Secret", name) {
		return files{}, nil
	} else if err != nil {
		return nil, err
	}
	return s.selectKeys(m.Data, items, volume, podspec.IsTrue(optional), "Secret "+pod.Namespace+"/"+name)
}

// selectKeys returns a file for each key. If items is not empty, it returns files only for the keys in items, at the
// paths given there.
func (s fileSources) selectKeys(data map[string][]byte, items []v1.KeyToPath, volume defaults, optional bool, from string) (files, error) {
	all := make(files, len(data))
	if len(items) == 0 {
		for k, v := range data {
			all[k] = s.newFile(v, nil, nil, volume)
		}
		return all, nil
	}
	for _, item := range items {
		v, ok := data[item.Key]
		if !ok && optional {
			continue
		}
		if !ok {
			return nil, fmt.Errorf("%s has no key %q", from, item.Key)
		}
		all[item.Path] = s.newFile(v, item.Mode, item.User, volume)
	}
	return all, nil
}

func (s fileSources) downwardFiles(pod *v1.Pod, items []v1.DownwardAPIVolumeFile, volume defaults) (files, error) {
	all := make(files, len(items))
	for _, item := range items {
		var value string
		var err error
		switch {
		case item.FieldRef != nil:
			value, err = s.fields.Field(pod, item.FieldRef.FieldPath)
		case item.ResourceFieldRef != nil:
			value, err = s.fields.Resource(pod, item.ResourceFieldRef)
		default:
			err = errors.New("neither fieldRef nor resourceFieldRef is set")
		}
		if err != nil {
			return nil, fmt.Errorf("file %q: %w", item.Path, err)
		}
		all[item.Path] = s.newFile([]byte(value), item.Mode, item.User, volume)
	}
	return all, nil
}

// tokenFile returns a file with a token. For the mode of the file, see privateFile.
// https://github.com/kubernetes/enhancements/tree/master/keps/sig-storage/1205-bound-service-account-tokens#file-permission
func (s fileSources) tokenFile(pod *v1.Pod, p *v1.ServiceAccountTokenProjection, volume defaults) (files, error) {
	text, err := s.objects.Token(pod, p)
	if err != nil {
		return nil, err
	}
	return files{p.Path: s.privateFile(pod, []byte(text), p.User, volume)}, nil
}

// privateFile returns a file that only its owner and the pod's fsGroup can read. The owner is the user that
// the volume specifies. If the volume specifies none, the owner is the user with whose ID all containers of
// the pod run. If there is neither such a user nor an fsGroup, the file belongs to root and has the mode that
// the volume specifies.
func (s fileSources) privateFile(pod *v1.Pod, data []byte, own *int64, volume defaults) file {
	f := s.newFile(data, nil, own, volume)
	user, one := onlyUser(pod)
	explicit := s.ownerOf(own, volume) != nil
	if _, group := fsGroup(pod); group || one || explicit {
		f.mode = privateMode
	}
	if !explicit {
		f.uid = user
	}
	return f
}

// trustBundleFile returns a file with the certificates of a ClusterTrustBundle. The file is empty
// if an optional bundle does not exist.
// https://kubernetes.io/docs/concepts/storage/projected-volumes/#clustertrustbundle
func (s fileSources) trustBundleFile(pod *v1.Pod, p *v1.ClusterTrustBundleProjection, volume defaults) (files, error) {
	anchors, err := s.objects.TrustAnchors(pod, p)
	if err != nil {
		return nil, fmt.Errorf("clusterTrustBundle %q: %w", p.Path, err)
	}
	return files{p.Path: s.privateFile(pod, anchors, p.User, volume)}, nil
}

// certificateFiles returns the files of a pod certificate. The key and the chain are written to one common file, to
// separate files, or to both.
//
// https://kubernetes.io/docs/concepts/storage/projected-volumes/#podcertificate
func (s fileSources) certificateFiles(pod *v1.Pod, name string, source int, p *v1.PodCertificateProjection,
	volume defaults) (files, error) {
	key, chain, err := s.objects.Credentials(pod, name, source)
	if err != nil {
		return nil, err
	}
	all := files{}
	for path, data := range map[string][]byte{
		p.CredentialBundlePath: slices.Concat(key, chain), p.KeyPath: key, p.CertificateChainPath: chain,
	} {
		if path != "" {
			all[path] = s.privateFile(pod, data, p.User, volume)
		}
	}
	return all, nil
}

// onlyUser returns the user ID with which all containers of the pod run. It returns false if the IDs differ
// or one of them is unknown.
func onlyUser(pod *v1.Pod) (uid int, ok bool) {
	for _, c := range podspec.Containers(&pod.Spec) {
		user := runAsUser(pod, c)
		if user == nil || ok && int(*user) != uid {
			return 0, false
		}
		uid, ok = int(*user), true
	}
	return uid, ok
}

func runAsUser(pod *v1.Pod, ctr *v1.Container) *int64 {
	var own, all *int64
	if sc := ctr.SecurityContext; sc != nil {
		own = sc.RunAsUser
	}
	if sc := pod.Spec.SecurityContext; sc != nil {
		all = sc.RunAsUser
	}
	return cmp.Or(own, all)
}

func modeOf(own, volume *int32) fs.FileMode {
	mode := int32(defaultMode)
	if m := cmp.Or(own, volume); m != nil {
		mode = *m
	}
	return fs.FileMode(mode).Perm()
}

func optionalMissing(err error, optional *bool) bool {
	return apierrors.IsNotFound(err) && podspec.IsTrue(optional)
}
