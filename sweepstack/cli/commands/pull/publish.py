"""`sweepctl pull --to`: copies the evidence from a folder of this host to object storage."""

from __future__ import annotations

from json import dumps

from sweepstack.cli.output import YES, Out, moved, moved_json, size
from sweepstack.cli.progress import Progress
from sweepstack.core.bucket_address import SCHEME, S3Address
from sweepstack.core.suggest import did_you_mean
from sweepstack.evidence.publish import publish as publish_folder
from sweepstack.evidence.s3.object_store import box_policy
from sweepstack.onbox.common.errors import EvidenceError, No, Unsure
from sweepstack.onbox.common.units import count
from sweepstack.operations.sweep.sources import Sources, open_sources
from sweepstack.operations.sweep.target import Target
from sweepstack.status.engine.call import ExportCall


def publish(target: Target, to: str, out: Out, begun: ExportCall | None = None) -> int:
    """Exit 0 if every object is there by its checksum, the folder is closed, and the stack file names the bucket."""
    stack = target.stack
    if not to:
        raise Unsure(
            "where to? Name a bucket and a prefix", [f"sweepctl pull --to s3://<bucket>/{stack} --stack {stack}"]
        )
    uri = S3Address.parse(to).uri
    sources = open_sources(target, begun)
    source = _source(sources, uri)
    with Progress("publish", unit="bytes") as progress:
        try:
            done = publish_folder(source, uri, progress.at)
        except EvidenceError as error:
            raise Unsure(str(error), [f"sweepctl status --stack {stack}"]) from error
    written = target.file.write_pull_to(uri)
    following = [f"pulumi up --stack {stack}    (the state follows; no box is touched)"]
    out.document(
        {
            "stack": stack,
            "from": source,
            "to": done.uri,
            "objects": done.objects,
            "bytes": done.bytes,
            "moved": moved_json(done.traffic),
            "stack_file_changed": written,
            "notes": list(done.notes),
            "next": following,
        }
    )
    out.line(f"{count(done.objects, 'object')}, {size(done.bytes)}, in {done.uri}, each found there by its checksum")
    out.line(moved(done.traffic))
    for note in done.notes:
        out.line(f"note   {note}", style="yellow")
    out.line(f"{source} is closed: it names the new place, and you may remove it after the next `pulumi up`")
    out.line(f"{target.file.shown}: pull_to: {uri}" + ("" if written else " (as it was)"))
    out.next(following)
    return YES


def _source(sources: Sources, uri: str) -> str:
    evidence = sources.evidence
    if evidence is None:
        raise Unsure(
            sources.problem
            or "there is no evidence yet: name the bucket as pull_to in the stack file, and bring it up",
            [f"pulumi up --stack {sources.target.stack}"],
        )
    if evidence.startswith(SCHEME):
        raise No(f"the evidence is in object storage already: {evidence}" + ("" if evidence == uri else f", not {uri}"))
    return evidence


def show_policy(target: Target, box: str, to: str | None, begun: ExportCall | None = None) -> int:
    """Prints the access policy for the credentials of one box, by its native id in the state."""
    sources = open_sources(target, begun)
    address = to or sources.evidence or ""
    if not address.startswith(SCHEME):
        raise Unsure(
            f"the evidence is {address or 'nowhere yet'}: a folder needs no credentials. For a bucket, name it",
            [f"sweepctl pull --to s3://<bucket>/<prefix> --access {box} --stack {target.stack}"],
        )
    found = next((entry for entry in sources.state.boxes if entry.name == box), None)
    if found is None:
        names = [entry.name for entry in sources.state.boxes]
        raise No(f"there is no box {box} in the state{did_you_mean(box, names)}")
    try:
        print(dumps(box_policy(S3Address.parse(address), found.native_id), indent=2))
    except EvidenceError as error:
        raise Unsure(str(error)) from error
    return YES
