package manifest

import (
	"net"
	"path"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/islet-edge/islet/internal/pattern"
)

// checkStorage checks volumes that use storage outside of the node.
func (r *review) checkStorage(p *field.Path, v *v1.Volume, source string) {
	switch source {
	case "nfs":
		r.requireText(p.Child("server"), v.NFS.Server)
		r.failIf(!path.IsAbs(v.NFS.Path), p.Child("path"), v.NFS.Path, "must be an absolute path")
	case "iscsi":
		r.checkISCSI(p, v.ISCSI)
		const longest = 64 // maximum length of the name of the initiator's interface
		long := v.ISCSI.InitiatorName != nil && len(v.Name+":"+v.ISCSI.TargetPortal) > longest
		r.failIf(long, p.Child("targetPortal"), v.ISCSI.TargetPortal,
			"is too long together with the volume's name")
	case "fc":
		r.fibreChannel(p, v.FC)
	case "rbd":
		r.someStrings(p.Child("monitors"), v.RBD.CephMonitors)
		r.requireText(p.Child("image"), v.RBD.RBDImage)
	case "cephfs":
		r.someStrings(p.Child("monitors"), v.CephFS.Monitors)
	case "glusterfs":
		r.requireText(p.Child("endpoints"), v.Glusterfs.EndpointsName)
		r.requireText(p.Child("path"), v.Glusterfs.Path)
	case "flexVolume":
		r.requireText(p.Child("driver"), v.FlexVolume.Driver)
		for key := range v.FlexVolume.Options {
			domain, _, _ := strings.Cut("."+strings.ToLower(key), "/")
			r.failIf(strings.HasSuffix(domain, ".kubernetes.io") || strings.HasSuffix(domain, ".k8s.io"), p.Child("options").Key(key), key,
				"kubernetes.io and k8s.io are reserved")
		}
	case "gitRepo":
		r.requireText(p.Child("repository"), v.GitRepo.Repository)
		r.checkDescending(p.Child("directory"), v.GitRepo.Directory)
	default:
		r.cloudStorage(p, v, source)
	}
}

func (r *review) someStrings(p *field.Path, list []string) {
	if len(list) == 0 {
		r.rejectMissing(p, "")
	}
}

// cloudStorage checks the volumes of cloud providers and vendors.
func (r *review) cloudStorage(p *field.Path, v *v1.Volume, source string) {
	switch source {
	case "gcePersistentDisk":
		r.requireText(p.Child("pdName"), v.GCEPersistentDisk.PDName)
		r.inRange(p.Child("partition"), int64(v.GCEPersistentDisk.Partition), 0, 255)
	case "awsElasticBlockStore":
		r.requireText(p.Child("volumeID"), v.AWSElasticBlockStore.VolumeID)
		r.inRange(p.Child("partition"), int64(v.AWSElasticBlockStore.Partition), 0, 255)
	case "cinder":
		r.requireText(p.Child("volumeID"), v.Cinder.VolumeID)
		r.secretRef(p, v.Cinder.SecretRef)
	case "azureFile":
		r.requireText(p.Child("secretName"), v.AzureFile.SecretName)
		r.requireText(p.Child("shareName"), v.AzureFile.ShareName)
	case "azureDisk":
		r.azureDisk(p, v.AzureDisk)
	case "vsphereVolume":
		r.requireText(p.Child("volumePath"), v.VsphereVolume.VolumePath)
	case "photonPersistentDisk":
		r.requireText(p.Child("pdID"), v.PhotonPersistentDisk.PdID)
	case "portworxVolume":
		r.requireText(p.Child("volumeID"), v.PortworxVolume.VolumeID)
	case "scaleIO":
		r.requireText(p.Child("gateway"), v.ScaleIO.Gateway)
		r.requireText(p.Child("system"), v.ScaleIO.System)
		r.requireText(p.Child("volumeName"), v.ScaleIO.VolumeName)
	case "storageos":
		r.checkName(p.Child("volumeName"), v.StorageOS.VolumeName, validation.IsDNS1123Label)
		if v.StorageOS.VolumeNamespace != "" {
			r.checkRule(p.Child("volumeNamespace"), v.StorageOS.VolumeNamespace, validation.IsDNS1123Label)
		}
		r.secretRef(p, v.StorageOS.SecretRef)
	case "flocker":
		f := v.Flocker
		r.failIf((f.DatasetName == "") == (f.DatasetUUID == ""), p, "", "must have exactly one of datasetName and datasetUUID")
		r.failIf(strings.Contains(f.DatasetName, "/"), p.Child("datasetName"), f.DatasetName, "must not contain '/'")
	case "quobyte":
		r.checkQuobyte(p, v.Quobyte)
	}
}

func (r *review) secretRef(p *field.Path, ref *v1.LocalObjectReference) {
	if ref != nil {
		r.requireText(p.Child("secretRef", "name"), ref.Name)
	}
}

// The three name formats of iSCSI initiators and targets.
var (
	iscsiName = pattern.New(`iqn\.\d{4}-\d{2}\.([[:alnum:]-.]+)(:[^,;*&$|\s]+)$`)
	iscsiEUI  = pattern.New(`^eui.[[:alnum:]]{16}$`)
	iscsiNAA  = pattern.New(`^naa.[[:alnum:]]{32}$`)
)

func (r *review) checkISCSI(p *field.Path, v *v1.ISCSIVolumeSource) {
	name := func(at *field.Path, name string) {
		good := strings.HasPrefix(name, "iqn") && iscsiName().MatchString(name) ||
			iscsiEUI().MatchString(name) || iscsiNAA().MatchString(name)
		r.failIf(!good, at, name, "must be an iqn., eui. or naa. name")
	}
	r.requireText(p.Child("targetPortal"), v.TargetPortal)
	if r.requireText(p.Child("iqn"), v.IQN) {
		name(p.Child("iqn"), v.IQN)
	}
	if v.InitiatorName != nil {
		name(p.Child("initiatorName"), *v.InitiatorName)
	}
	r.inRange(p.Child("lun"), int64(v.Lun), 0, 255)
	if (v.DiscoveryCHAPAuth || v.SessionCHAPAuth) && v.SecretRef == nil {
		r.rejectMissing(p.Child("secretRef"), "CHAP needs it")
	}
}

func (r *review) fibreChannel(p *field.Path, fc *v1.FCVolumeSource) {
	r.failIf((len(fc.TargetWWNs) == 0) == (len(fc.WWIDs) == 0), p.Child("targetWWNs"), "", "must have exactly one of targetWWNs and wwids")
	if len(fc.TargetWWNs) == 0 {
		return
	}
	if fc.Lun == nil {
		r.rejectMissing(p.Child("lun"), "targetWWNs need it")
	} else {
		r.inRange(p.Child("lun"), int64(*fc.Lun), 0, 255)
	}
}

func (r *review) azureDisk(p *field.Path, d *v1.AzureDiskVolumeSource) {
	r.requireText(p.Child("diskName"), d.DiskName)
	at := p.Child("diskURI")
	if r.requireText(at, d.DataDiskURI) {
		if managed := *d.Kind == v1.AzureManagedDisk; managed {
			r.failIf(!strings.HasPrefix(d.DataDiskURI, "/subscriptions/"), at, d.DataDiskURI, "must start with /subscriptions/")
		} else {
			r.failIf(!strings.HasPrefix(d.DataDiskURI, "https://"), at, d.DataDiskURI, "must start with https://")
		}
	}
	oneOfIf(r, p.Child("cachingMode"), d.CachingMode,
		v1.AzureDataDiskCachingNone, v1.AzureDataDiskCachingReadOnly, v1.AzureDataDiskCachingReadWrite)
	oneOfIf(r, p.Child("kind"), d.Kind, v1.AzureSharedBlobDisk, v1.AzureDedicatedBlobDisk, v1.AzureManagedDisk)
}

func (r *review) checkQuobyte(p *field.Path, q *v1.QuobyteVolumeSource) {
	r.requireText(p.Child("volume"), q.Volume)
	if len(q.Tenant) > 64 {
		r.errs = append(r.errs, field.TooLong(p.Child("tenant"), "", 64))
	}
	for _, registry := range strings.Split(q.Registry, ",") {
		_, _, err := net.SplitHostPort(registry)
		r.failIf(err != nil, p.Child("registry"), q.Registry, "must be comma-separated pairs of host:port")
	}
}
