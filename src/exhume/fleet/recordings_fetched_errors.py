"""What goes wrong with object storage, as sentences. Arrow hands on what each store's own library says."""

import re

from exhume.text import printable

# aws-sdk-cpp, S3Errors.h and CoreErrors.h, as Arrow prints them ("AWS Error NAME during OPERATION operation: MESSAGE").
_AWS = re.compile(
    r"AWS Error (?P<name>[A-Z_ ]{1,60}?)(?: \(HTTP status (?P<status>[0-9]{3})\))?"
    r" during [A-Za-z0-9]{1,60} operation: (?P<said>.*)",
    re.S,
)
_DENIED = (
    "ACCESS_DENIED",
    "INVALID_ACCESS_KEY_ID",
    "SIGNATURE_DOES_NOT_MATCH",
    "INVALID_CLIENT_TOKEN_ID",
    "UNRECOGNIZED_CLIENT",
)
_CURL = re.compile(r"curlCode: [0-9]+, (?P<said>[^;\n]{1,120})")
_ENDPOINT = "AWS_ENDPOINT_URL names another server than Amazon's"


def sentence(error: BaseException, bucket: str) -> str:
    """Why, behind "cannot be listed:" or "cannot be read:"."""
    if isinstance(error, FileNotFoundError):
        return "there is nothing at that place"
    text = str(error)
    found = _AWS.search(text)
    if found is None:
        return printable(text, 160)
    name, status = found["name"].strip(), found["status"]
    if name == "NO_SUCH_BUCKET":
        return f"there is no bucket {printable(bucket, 80)} ({_ENDPOINT})"
    if name in _DENIED or status in ("401", "403"):
        return (
            f"these credentials may not read it, or are not known ({name}): AWS_PROFILE, or AWS_ACCESS_KEY_ID and "
            f"AWS_SECRET_ACCESS_KEY, say which are used; s3:ListBucket and s3:GetObject are needed"
        )
    if name == "NETWORK_CONNECTION":
        curl = _CURL.search(found["said"])
        return f"the server cannot be reached: {printable(curl['said'] if curl else found['said'], 120)} ({_ENDPOINT})"
    return f"{name}: {printable(found['said'], 160)}"
