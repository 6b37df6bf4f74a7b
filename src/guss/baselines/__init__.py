"""Methods that the paper compares with and that do not plan.

trust_region   the steps of TRPO and CPO
"""
