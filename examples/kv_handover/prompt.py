"""The prompt that the example answers: a question about a short story, about 300 tokens.

Constants only.
"""

STORY = """\
The lighthouse on Gull Rock had been dark for eleven years when Marta rowed out to it with her \
grandfather's toolbox. The council had written that the lamp was beyond repair, but nobody from \
the council had ever climbed the stairs. Marta did. She found the great lens under a sheet, dusty \
and without a scratch, and behind it a brass clockwork that had simply stopped.

For three weeks she cleaned one gear after another with oil and an old toothbrush. The fishermen \
laughed when they saw her lantern moving behind the windows at night. Her brother Tomas brought \
soup and told her to come home before the autumn storms. On the last evening of September the \
storm came early. Four boats were still outside, and the rain was so thick that the harbour \
lights could not be seen from the sea.

Marta wound the clockwork, lit the burner and pulled the sheet from the lens. The gears groaned, \
then they turned. A white beam swept over the waves, once every nine seconds, just as it had when \
she was small. One by one the four boats turned towards it and came home. The next morning the \
fishermen rowed out to Gull Rock, and each of them carried a can of oil."""

INSTRUCTION = "What can we learn from this story?"

PROMPT = f"{INSTRUCTION}\n\n{STORY}"
