package bundle

import (
	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
)

// Annotations of the root index and of its descriptors. Old tools that copy an index keep annotations, but drop its artifact types.
const (
	// AnnotationVersion is an annotation of the root. Its value is the version of the format.
	AnnotationVersion = "dev.islet.bundle.version"
	// AnnotationPart is an annotation of the descriptors of the contents and the signature. Its value is the artifact type.
	AnnotationPart = "dev.islet.bundle.part"

	rootVersion = "1"
)

// Artifact types of the manifests of a bundle.
const (
	ArtifactContents  = "application/vnd.islet.bundle.contents.v1"
	ArtifactSignature = "application/vnd.islet.bundle.signature.v1"
)

// Media types of the blobs of a bundle.
const (
	MediaContents  = "application/vnd.islet.bundle.contents.v1+json"
	MediaSignature = "application/vnd.islet.bundle.signature.v1+text"
	MediaManifest  = "application/vnd.islet.bundle.manifest.v1+yaml" // pods, ConfigMaps, claims
	MediaSealed    = "application/vnd.islet.bundle.sealed.v1+yaml"   // sealed Secrets
	MediaKubelet   = "application/vnd.islet.bundle.kubelet.v1+yaml"  // a KubeletConfiguration
	MediaEdge      = "application/vnd.islet.bundle.edge.v1+yaml"     // an EdgeConfiguration
	MediaProgram   = "application/vnd.islet.bundle.program.v1.tar+gzip"
	MediaRelease   = "application/vnd.islet.bundle.release.v1+text" // the release text of a program
)

// Media types of Docker for an image manifest and an index. Registries still use them.
const (
	DockerManifest = "application/vnd.docker.distribution.manifest.v2+json"
	DockerIndex    = "application/vnd.docker.distribution.manifest.list.v2+json"
)

// IsImageManifest reports whether a media type is used for the manifest of an image for one platform.
func IsImageManifest(mediaType string) bool {
	return mediaType == ocispec.MediaTypeImageManifest || mediaType == DockerManifest
}

// IsImageIndex reports whether a media type is used for an index of images.
func IsImageIndex(mediaType string) bool {
	return mediaType == ocispec.MediaTypeImageIndex || mediaType == DockerIndex
}

// IsLarge reports whether a blob of a media type may be so large that a reader should not keep it in memory: a layer, or islet's archive.
func IsLarge(mediaType string) bool { return isLayer(mediaType) || mediaType == MediaProgram }

// BlobFile returns the name of a blob's file in a layout. It returns an error if the digest is not valid.
func BlobFile(d digest.Digest) (string, error) { return blobFile(d), CheckDigest(d) }

// maxOf returns the maximum size of a file of a bundle, in bytes. It returns 0 for a media type that is not one of a file.
func maxOf(mediaType string) int64 {
	switch mediaType {
	case MediaManifest, MediaSealed, MediaKubelet, MediaEdge:
		return MaxFile
	case MediaProgram:
		return maxProgram
	case MediaRelease:
		return maxSmall
	}
	return 0
}

// Limits of a bundle. The page docs/bundle-format.md lists them.
const (
	// MaxFile is the maximum size of a manifest or configuration, in bytes. islet apply has the same limit.
	MaxFile = 3 << 20
	// MaxDocument is the maximum size of an index, a manifest, a config or contents.json, in bytes.
	MaxDocument = 1 << 20
	// MaxBlob is the maximum size of a blob, in bytes. FAT has no larger files.
	MaxBlob = 4<<30 - 1
	// MaxFiles is the maximum number of files, and maxFileBytes is the maximum number of their bytes without the program.
	MaxFiles     = 2000
	maxFileBytes = 16 << 20
	// MaxManifests is the maximum number of image manifests, and maxImageLayers is the maximum number of layers of one image.
	MaxManifests   = 1000
	maxImageLayers = 500
	// MaxBlobs is the maximum number of different blobs that the contents manifest reaches.
	MaxBlobs = 20_000
	// maxEntries is the maximum number of entries of a tar. A bundle's tar has also oci-layout, index.json, the root, three blobs of the
	// signature and the contents manifest. Other programs add an entry for each of the directories ".", "blobs" and "blobs/sha256".
	maxEntries = MaxBlobs + 10
	// maxEntryName is the maximum length of the name of an entry of a bundle's tar, as in a ustar header, in bytes. maxPath is the same
	// for a tar with images.
	maxEntryName = 100
	maxPath      = 4096

	maxSmall   = 16 << 10
	maxProgram = 256 << 20
	// maxWeight is the maximum memory of a decoded document, in bytes.
	maxWeight = 8 << 20
)
