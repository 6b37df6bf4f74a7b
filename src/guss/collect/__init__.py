"""The agent: collect, fit, plan, repeat (Alg. 1).

episodes      whole episodes of compiled tasks, all seeds in one program
exploration   the first data
settings      everything that decides how an agent behaves
learner       models and data of all seeds
agent         `Agent`: the loop for one system, compiled, Gymnasium's or the user's own
"""
