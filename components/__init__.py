"""The resources of a sweep, for a Pulumi program.

To import them makes a hundred thousand objects and no garbage: no garbage is looked for until `components.program` has
all of them.
"""

import gc

gc.disable()
